// SPDX-License-Identifier: GPL-2.0
/*
 * Work for two CPUs: `work KIND MILLISECONDS` prints the operations, the span in nanoseconds, the median
 * and 99th percentile of the wake latency in nanoseconds with the number of wake-ups, and what sysfs
 * counted meanwhile: for each idle state its time in microseconds, entries, `above` and `below`,
 * summed over the CPUs.
 *
 *   pingpong    round trips over two pipes between a task on each CPU
 *   requests    the same, and the client sleeps 20 to 400 us between them, at random
 *   hackbench   messages from eight tasks to eight others over socket pairs, on any CPU
 *   periodic    a task on CPU 1 that sleeps until the next millisecond, and computes a little
 *   interrupts  CPU 0 interrupts CPU 1 every 50 to 600 us at random; no task runs there
 *   idle        nothing
 *
 * Wake latency: from the write (pingpong, requests), the timer's time (periodic) or the interrupt's
 * sending (interrupts, there and back) to the first instruction after it in the task.
 */
#define _GNU_SOURCE
#include <err.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLE_COUNT_MAX 400000

/* Shared by all tasks. Only one writes samples. */
struct result {
	uint64_t operation_count;
	uint64_t sample_count;
	uint32_t samples_ns[SAMPLE_COUNT_MAX];
};

static struct result *result;
static uint64_t end_ns;
static uint64_t seed = 88172645463325252;

static uint64_t random_below(uint64_t bound)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 11) % bound;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
	struct timespec until = { ns / 1000000000, ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void sample(uint64_t ns)
{
	if (result->sample_count < SAMPLE_COUNT_MAX)
		result->samples_ns[result->sample_count++] = ns < UINT32_MAX ? ns : UINT32_MAX;
}

static void run_on(int first_cpu, int last_cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int cpu = first_cpu; cpu <= last_cpu; cpu++)
		CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(2, "sched_setaffinity to CPUs %d to %d", first_cpu, last_cpu);
}

static void pin(int cpu)
{
	run_on(cpu, cpu);
}

/* The pipes carry the time of the write; 0 ends it. */
static void round_trips(uint64_t think_least_us, uint64_t think_most_us)
{
	int there[2], back[2];
	uint64_t at_ns;

	if (pipe(there) || pipe(back))
		err(2, "pipe");
	pin(0);
	if (!fork()) {
		pin(1);
		while (read(there[0], &at_ns, sizeof(at_ns)) == sizeof(at_ns) && at_ns) {
			sample(now_ns() - at_ns);
			at_ns = now_ns();
			if (write(back[1], &at_ns, sizeof(at_ns)) != sizeof(at_ns))
				err(2, "answer");
		}
		_exit(0);
	}
	do {
		if (think_most_us) {
			uint64_t us = think_least_us + random_below(think_most_us - think_least_us);

			sleep_until(now_ns() + us * 1000);
		}
		at_ns = now_ns();
		if (write(there[1], &at_ns, sizeof(at_ns)) != sizeof(at_ns) ||
		    read(back[0], &at_ns, sizeof(at_ns)) != sizeof(at_ns))
			err(2, "round trip");
		result->operation_count++;
	} while (now_ns() < end_ns);
	at_ns = 0;
	if (write(there[1], &at_ns, sizeof(at_ns)) != sizeof(at_ns))
		err(2, "end");
	wait(NULL);
}

static void hackbench(void)
{
	enum { PAIR_COUNT = 8, MESSAGE_BYTES = 100 };
	int pairs[PAIR_COUNT][2];
	char message[MESSAGE_BYTES] = { 0 };

	run_on(0, 1);
	for (int i = 0; i < PAIR_COUNT; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]))
			err(2, "socketpair");
	}
	for (int i = 0; i < PAIR_COUNT; i++) {
		if (!fork()) {
			/* A pair's receiver; the senders write to all pairs in turn. */
			for (int j = 0; j < PAIR_COUNT; j++)
				close(pairs[j][1]);
			while (read(pairs[i][0], message, MESSAGE_BYTES) > 0)
				;
			_exit(0);
		}
		if (!fork()) {
			for (int j = i; now_ns() < end_ns; j = (j + 1) % PAIR_COUNT) {
				if (write(pairs[j][1], message, MESSAGE_BYTES) != MESSAGE_BYTES)
					err(2, "message");
				__atomic_fetch_add(&result->operation_count, 1, __ATOMIC_RELAXED);
			}
			_exit(0);
		}
	}
	for (int i = 0; i < PAIR_COUNT; i++) {
		close(pairs[i][0]);
		close(pairs[i][1]);
	}
	while (wait(NULL) > 0)
		;
}

static void periodic(void)
{
	uint64_t due_ns = now_ns();

	pin(1);
	while (due_ns < end_ns) {
		due_ns += 1000000;
		sleep_until(due_ns);
		sample(now_ns() - due_ns);
		for (uint64_t i = 20000; i; i--)
			__asm__("" : : "r"(i));
		result->operation_count++;
	}
}

/* Reading a counter of another CPU interrupts it, and waits for the answer. */
static void interrupts(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
	};
	int event = syscall(SYS_perf_event_open, &attr, -1, 1, -1, 0);
	uint64_t count;

	if (event < 0)
		err(2, "perf_event_open");
	pin(0);
	while (now_ns() < end_ns) {
		uint64_t at_ns;

		sleep_until(now_ns() + (50 + random_below(550)) * 1000);
		at_ns = now_ns();
		if (read(event, &count, sizeof(count)) != sizeof(count))
			err(2, "read of a counter");
		sample(now_ns() - at_ns);
		result->operation_count++;
	}
}

static int by_size(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

/* What sysfs counts of each idle state, in this order. */
static const char *const counters[] = { "time", "usage", "above", "below" };
#define STATE_COUNT_MAX 10
#define COUNTER_COUNT 4

/* Adds up both CPUs' counters, times `sign`. Returns the number of states. */
static int count_states(int64_t totals[STATE_COUNT_MAX][COUNTER_COUNT], int sign)
{
	int state_count = 0;

	/* A stay is counted when it ends, so each CPU is made to run. */
	pin(1);
	pin(0);
	for (int cpu = 0; cpu < 2; cpu++) {
		for (int i = 0; i < STATE_COUNT_MAX * COUNTER_COUNT; i++) {
			int state = i / COUNTER_COUNT;
			char path[100];
			long long count;
			FILE *file;

			snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cpuidle/state%d/%s", cpu,
				 state, counters[i % COUNTER_COUNT]);
			file = fopen(path, "r");
			if (!file)
				break;
			if (fscanf(file, "%lld", &count) != 1)
				errx(2, "%s: no number", path);
			totals[state][i % COUNTER_COUNT] += sign * count;
			fclose(file);
			if (state >= state_count)
				state_count = state + 1;
		}
	}
	return state_count;
}

static unsigned int percentile(unsigned int percent)
{
	uint64_t count = result->sample_count;

	return count ? result->samples_ns[(count - 1) * percent / 100] : 0;
}

int main(int argc, char **argv)
{
	const char *kind = argc == 3 ? argv[1] : "";
	int64_t totals[STATE_COUNT_MAX][COUNTER_COUNT] = { 0 };
	uint64_t start_ns;
	int state_count;

	result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE,
		      -1, 0);
	if (result == MAP_FAILED)
		err(2, "mmap");
	prctl(PR_SET_TIMERSLACK, 1);
	count_states(totals, -1);
	start_ns = now_ns();
	end_ns = start_ns + (argc == 3 ? atoll(argv[2]) : 0) * 1000000;
	if (!strcmp(kind, "pingpong"))
		round_trips(0, 0);
	else if (!strcmp(kind, "requests"))
		round_trips(20, 400);
	else if (!strcmp(kind, "hackbench"))
		hackbench();
	else if (!strcmp(kind, "periodic"))
		periodic();
	else if (!strcmp(kind, "interrupts"))
		interrupts();
	else if (!strcmp(kind, "idle"))
		sleep_until(end_ns);
	else
		errx(2, "usage: work pingpong|requests|hackbench|periodic|interrupts|idle MILLISECONDS");
	end_ns = now_ns();
	state_count = count_states(totals, 1);
	qsort(result->samples_ns, result->sample_count, sizeof(uint32_t), by_size);
	printf("%llu %llu %u %u %llu", (unsigned long long)result->operation_count,
	       (unsigned long long)(end_ns - start_ns), percentile(50), percentile(99),
	       (unsigned long long)result->sample_count);
	for (int i = 0; i < state_count * COUNTER_COUNT; i++)
		printf(" %lld", (long long)totals[i / COUNTER_COUNT][i % COUNTER_COUNT]);
	printf("\n");
	return 0;
}
