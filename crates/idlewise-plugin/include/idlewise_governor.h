/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The C interface of idlewise for governors of your own.
 *
 *   #include <idlewise_governor.h>
 *
 *   static int my_select(struct idlewise_context *context, struct idlewise_device *device,
 *                        bool *stop_tick) { ... }
 *
 *   IDLEWISE_GOVERNOR(.select = my_select);
 *
 * and `idlewise replay --governor my.c`. Or build it yourself, with this header alone:
 *
 *   cc -shared -fPIC -O2 -o my.so my.c        and        idlewise replay --governor my.so
 *
 * The idle loop of one CPU calls, from one thread:
 *
 *   enable once, then repeatedly: select, (the stay), reflect.
 *
 * State: each replayed CPU has its own copy of all variables of the file, including static ones, with their
 * values from before enable. So a plain static variable is that CPU's history, and several copies of a file
 * never affect each other.
 *
 * Times are in nanoseconds. This file does not change while IDLEWISE_GOVERNOR_VERSION stays the same; new
 * fields are only added at the ends.
 */
#ifndef IDLEWISE_GOVERNOR_H
#define IDLEWISE_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#define IDLEWISE_GOVERNOR_VERSION 1
/* The maximum number of states of a machine. */
#define IDLEWISE_STATE_COUNT_MAX 10
/* A time that never comes. */
#define IDLEWISE_FAR_AWAY_NS INT64_MAX

/* One idle state. States are ordered; 0 is the shallowest. */
struct idlewise_state {
	int64_t exit_latency_ns;     /* worst case from the wake-up to the first instruction */
	int64_t target_residency_ns; /* shortest stay that saves energy, including entry */
	bool is_polling;             /* the CPU runs a loop; only state 0 may do that */
};

/* What a governor knows about its machine. */
struct idlewise_machine {
	uint32_t state_count;
	uint32_t tick_period_ns;
	struct idlewise_state states[IDLEWISE_STATE_COUNT_MAX];
};

/* What is known when the CPU goes idle. Read the timers with idlewise_sleep_length_ns(). */
struct idlewise_context {
	const struct idlewise_machine *machine;
	uint64_t now_ns;          /* the CPU's clock */
	int64_t latency_limit_ns; /* longest exit latency allowed now */
	uint32_t disabled;        /* bit i: state i is switched off */
	uint32_t iowait_count;    /* tasks that wait for I/O; always 0 in replay */
	bool tick_stopped;        /* the tick is already stopped */
	uint32_t timer_read_count;
	int64_t sleep_length_ns;
	int64_t next_event_ns;
};

/*
 * Returns the time to the next timer, not counting the tick. *next_event_ns (unless null) is the time to
 * the next event if the tick continues. Both are negative if overdue, and IDLEWISE_FAR_AWAY_NS if there is
 * none. Calls are counted, because in a kernel each one walks the timer wheel; results show the count.
 */
static inline int64_t idlewise_sleep_length_ns(struct idlewise_context *context,
					       int64_t *next_event_ns)
{
	context->timer_read_count++;
	if (next_event_ns)
		*next_event_ns = context->next_event_ns;
	return context->sleep_length_ns;
}

/* What the idle loop and the governor share about the CPU. */
struct idlewise_device {
	uint64_t last_residency_ns; /* the last stay, including exit latency; 0 if refused */
	uint64_t poll_limit_ns;     /* how long a polling state spins; the governor may set it */
	int32_t last_state;         /* the governor's own note; the loop never writes it */
	bool poll_time_limit;       /* the last polling state ended at that limit */
};

/* The outcome of a stay. Its length is device->last_residency_ns. */
struct idlewise_outcome {
	uint64_t now_ns;  /* the CPU's clock after the stay */
	uint32_t entered; /* the state that was entered */
	bool got_tick;    /* the tick's handler ran */
};

struct idlewise_governor {
	uint32_t version; /* IDLEWISE_GOVERNOR_VERSION */
	/* May be null. The machine stays at the same address. */
	void (*enable)(const struct idlewise_machine *machine, struct idlewise_device *device);
	/*
	 * Returns the state to enter, 0 to state_count - 1, and sets whether to stop the tick (*stop_tick
	 * is true before the call). Any other state ends the replay of this governor.
	 */
	int (*select)(struct idlewise_context *context, struct idlewise_device *device,
		      bool *stop_tick);
	/* May be null. */
	void (*reflect)(const struct idlewise_outcome *outcome, struct idlewise_device *device);
};

/* Exports a governor. Use it once in a file, with the fields of struct idlewise_governor. */
#define IDLEWISE_GOVERNOR(...)                                                                   \
	__attribute__((visibility("default"), used)) const struct idlewise_governor              \
		idlewise_governor = { .version = IDLEWISE_GOVERNOR_VERSION, __VA_ARGS__ }

#endif
