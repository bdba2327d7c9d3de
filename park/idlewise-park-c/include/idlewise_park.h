/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * idlewise-park for C and C++ (Linux). A thread that waits for another polls, monitors a cache line or
 * sleeps, depending on how long its earlier waits took.
 *
 * Functions that can fail return 0 or a negative errno value: -EINVAL for a null or misaligned pointer,
 * -ETIMEDOUT, -EBUSY if another thread is using the object, and -ENOTRECOVERABLE for a bug in the library
 * itself, which it reports on standard error. Times are nanoseconds of CLOCK_MONOTONIC. No function is a
 * cancellation point. A signal handler may only call the functions that wake.
 */
#ifndef IDLEWISE_PARK_H
#define IDLEWISE_PARK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the functions below. It increases when functions are added. */
#define IDLEWISE_PARK_ABI 1

/* Returns the version of the library that the program runs with. If it is below IDLEWISE_PARK_ABI,
 * functions that the program was built with are missing. */
uint32_t idlewise_park_abi(void);

/* No timeout. */
#define IDLEWISE_FOREVER UINT64_MAX

/*
 * A parker: one thread waits on it, and any number of threads wake it through unparkers. It holds at most
 * one token, which an unpark leaves and the next park takes. Whatever was written before the unpark is
 * visible after the park.
 */
typedef struct idlewise_parker idlewise_parker;
typedef struct idlewise_unparker idlewise_unparker;

/* Creates a parker. */
int idlewise_parker_create(idlewise_parker **parker);

/* Frees a parker that nobody waits on. Its unparkers stay valid but do nothing. NULL is allowed. */
void idlewise_parker_destroy(idlewise_parker *parker);

/* Waits for a token for at most timeout_ns, and takes it. Returns 0 with a token, -ETIMEDOUT without one,
 * or -EBUSY if another thread waits on this parker. */
int idlewise_parker_park(idlewise_parker *parker, uint64_t timeout_ns);

/* Creates an unparker for a parker. Release it when it is no longer needed. */
int idlewise_parker_unparker(const idlewise_parker *parker, idlewise_unparker **unparker);

/* Leaves a token and wakes the waiter, with a system call only if it sleeps. */
int idlewise_unparker_unpark(const idlewise_unparker *unparker);

/* Frees an unparker. NULL is allowed. */
void idlewise_unparker_release(idlewise_unparker *unparker);

/* Statistics of a parker's waits. Later versions may add fields at the end. */
typedef struct idlewise_wait_stats {
    uint64_t waits;       /* calls that found neither a token nor their time over */
    uint64_t timeouts;    /* how many of them ended without a token */
    uint64_t store_wakes; /* how many of them the waker's store alone ended */
} idlewise_wait_stats;

/* Writes at most size bytes of the statistics. Pass sizeof(idlewise_wait_stats). */
int idlewise_parker_stats(const idlewise_parker *parker, idlewise_wait_stats *stats, uint64_t size);

/*
 * A parker of one word, to embed in a structure. Zeroed memory is a parker without a token. Only one thread
 * at a time may wait on it. The thread's history, not the parker's, decides how it waits.
 */
typedef struct idlewise_raw_parker {
    uint32_t word;
} idlewise_raw_parker;

#define IDLEWISE_RAW_PARKER_INIT { 0 }

/* Like idlewise_parker_park. */
int idlewise_raw_park(idlewise_raw_parker *parker, uint64_t timeout_ns);

/* Like idlewise_unparker_unpark. The parker may be gone as soon as its waiter has the token. */
int idlewise_raw_unpark(idlewise_raw_parker *parker);

/* The same for memory that several processes share. A waker that is killed between its store and its system
 * call wakes nobody: use a timeout where a wait must not last for ever. */
typedef struct idlewise_process_parker {
    uint32_t word;
} idlewise_process_parker;

#define IDLEWISE_PROCESS_PARKER_INIT { 0 }

int idlewise_process_park(idlewise_process_parker *parker, uint64_t timeout_ns);
int idlewise_process_unpark(idlewise_process_parker *parker);

/* Sleeps while *word is expected and nobody wakes. May return 0 spuriously, and -ETIMEDOUT after the
 * timeout. It does not poll. */
int idlewise_word_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns);

/* Wakes one thread, or all, that sleep on the word. Change the word first; it is not read. */
int idlewise_word_wake_one(const uint32_t *word);
int idlewise_word_wake_all(const uint32_t *word);

#ifdef __cplusplus
}
#endif

#endif
