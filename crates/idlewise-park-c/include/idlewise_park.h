/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * idlewise-park for C and C++: threads that wait for each other poll, watch their cache line or sleep, by
 * what their waits were like. Linux.
 *
 * Functions that can fail return 0 or a negative errno value: -EINVAL for a null or misaligned pointer,
 * -ETIMEDOUT, -EBUSY where only one thread may be, and -ENOTRECOVERABLE for a defect of the library itself,
 * which it reports on standard error. Times are nanoseconds of CLOCK_MONOTONIC. No function is a
 * cancellation point, and none may be called from a signal handler but those that wake.
 */
#ifndef IDLEWISE_PARK_H
#define IDLEWISE_PARK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the functions below; it grows with them. */
#define IDLEWISE_PARK_ABI 1

/* The version of the library that the program runs with: at least IDLEWISE_PARK_ABI, or functions that the
 * program was built with are missing. */
uint32_t idlewise_park_abi(void);

/* No timeout. */
#define IDLEWISE_FOREVER UINT64_MAX

/*
 * A parker: one thread waits by it, any number wake it by its unparkers. It holds at most one token, which
 * an unpark leaves and the next park takes. All that was written before the unpark is seen after the park.
 */
typedef struct idlewise_parker idlewise_parker;
typedef struct idlewise_unparker idlewise_unparker;

/* Makes a parker. */
int idlewise_parker_create(idlewise_parker **parker);

/* Frees a parker that nobody waits by. Its unparkers stay valid and do nothing any more. NULL is fine. */
void idlewise_parker_destroy(idlewise_parker *parker);

/* Waits for a token and takes it, for at most timeout_ns. 0: with a token; -ETIMEDOUT: without; -EBUSY:
 * another thread waits by this parker. */
int idlewise_parker_park(idlewise_parker *parker, uint64_t timeout_ns);

/* Gives an unparker of a parker; release it when it is not needed any more. */
int idlewise_parker_unparker(const idlewise_parker *parker, idlewise_unparker **unparker);

/* Leaves a token and wakes the waiter, with a system call only if it sleeps. */
int idlewise_unparker_unpark(const idlewise_unparker *unparker);

/* Frees an unparker. NULL is fine. */
void idlewise_unparker_release(idlewise_unparker *unparker);

/* What a parker's waits were like so far. More may be added at the end. */
typedef struct idlewise_wait_stats {
    uint64_t waits;       /* that did not find their token there */
    uint64_t timeouts;    /* of these, how many ended without one */
    uint64_t store_wakes; /* of these, how many ended by the waker's store alone */
} idlewise_wait_stats;

/* Writes at most size bytes of the statistics: pass sizeof(idlewise_wait_stats). */
int idlewise_parker_stats(const idlewise_parker *parker, idlewise_wait_stats *stats, uint64_t size);

/*
 * A parker of one word, to embed in a structure of one's own. Zeroed memory is one without a token.
 * One thread at a time waits by it. The thread's own history, not the parker's, decides how.
 */
typedef struct idlewise_raw_parker {
    uint32_t word;
} idlewise_raw_parker;

#define IDLEWISE_RAW_PARKER_INIT { 0 }

/* As idlewise_parker_park. */
int idlewise_raw_park(idlewise_raw_parker *parker, uint64_t timeout_ns);

/* As idlewise_unparker_unpark. The parker may be gone as soon as its waiter has the token. */
int idlewise_raw_unpark(idlewise_raw_parker *parker);

/* The same for memory that several processes share. A waker that is killed between its store and its system
 * call wakes nobody: use a timeout where that must not be for ever. */
typedef struct idlewise_process_parker {
    uint32_t word;
} idlewise_process_parker;

#define IDLEWISE_PROCESS_PARKER_INIT { 0 }

int idlewise_process_park(idlewise_process_parker *parker, uint64_t timeout_ns);
int idlewise_process_unpark(idlewise_process_parker *parker);

/* Sleeps while *word is expected and nobody wakes; may return 0 for no reason. -ETIMEDOUT: time is up. It
 * does not poll. */
int idlewise_word_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns);

/* Wakes one or all that sleep on the word. Change it first; it is not read. */
int idlewise_word_wake_one(const uint32_t *word);
int idlewise_word_wake_all(const uint32_t *word);

#ifdef __cplusplus
}
#endif

#endif
