// SPDX-License-Identifier: GPL-2.0
/*
 * Work for two CPUs: `work LOAD MILLISECONDS [SEED]` prints the operations, the span in nanoseconds, the
 * median and 99th percentile of the wake latency in nanoseconds with the number of wake-ups, and what
 * sysfs counted meanwhile: for each idle state its time in microseconds, entries, `above` and `below`,
 * summed over the CPUs. `work` alone lists the loads.
 *
 * A seed changes the random times, and when in a tick's period the work begins. Without one, it begins at
 * once.
 *
 * Wake latency: from the write that wakes, the timer's time or the interrupt's sending (interrupts, there
 * and back) to the first instruction after it in the task.
 */
#define _GNU_SOURCE
#include <err.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
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

static void sleep_us(uint64_t least, uint64_t most)
{
	sleep_until(now_ns() + (least + random_below(most - least + 1)) * 1000);
}

static void compute(uint64_t round_count)
{
	while (round_count--)
		__asm__("" : : "r"(round_count));
}

static void sample(uint64_t ns)
{
	uint64_t index = __atomic_fetch_add(&result->sample_count, 1, __ATOMIC_RELAXED);

	if (index < SAMPLE_COUNT_MAX)
		result->samples_ns[index] = ns < UINT32_MAX ? ns : UINT32_MAX;
}

static void count_operation(void)
{
	__atomic_fetch_add(&result->operation_count, 1, __ATOMIC_RELAXED);
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

/* Whether this is the new task. It draws other random times. */
static bool is_new_task(void)
{
	pid_t pid = fork();

	if (pid < 0)
		err(2, "fork");
	if (!pid)
		seed ^= 0x9e3779b97f4a7c15;
	return !pid;
}

/* A pipe that carries times. 0 is the end. */
struct channel {
	int out, in;
};

static struct channel channel(void)
{
	int ends[2];

	if (pipe(ends))
		err(2, "pipe");
	return (struct channel){ .out = ends[0], .in = ends[1] };
}

static void put(struct channel channel, uint64_t at_ns)
{
	if (write(channel.in, &at_ns, sizeof(at_ns)) != sizeof(at_ns))
		err(2, "write");
}

/* Waits for it, with a timer that long ahead if there is one. */
static uint64_t take(struct channel channel, int timeout_ms)
{
	struct pollfd ready = { .fd = channel.out, .events = POLLIN };
	uint64_t at_ns;

	while (timeout_ms && !poll(&ready, 1, timeout_ms))
		;
	if (read(channel.out, &at_ns, sizeof(at_ns)) != sizeof(at_ns))
		err(2, "read");
	return at_ns;
}

/* How long a server thinks about each request: `rare` of 100 times between the second pair of times. */
struct service {
	unsigned int least_us, most_us, rare, rare_least_us, rare_most_us;
	int timeout_ms;
};

/* Answers on a CPU until the end. Samples how late each request was seen. */
static void serve(int cpu, struct channel there, struct channel back, const struct service *service)
{
	uint64_t at_ns;

	if (!is_new_task())
		return;
	pin(cpu);
	while ((at_ns = take(there, service->timeout_ms))) {
		sample(now_ns() - at_ns);
		if (random_below(100) < service->rare)
			sleep_us(service->rare_least_us, service->rare_most_us);
		else if (service->most_us)
			sleep_us(service->least_us, service->most_us);
		put(back, now_ns());
	}
	_exit(0);
}

/* Wakes on a CPU every period until the end. */
static void wake_periodically(int cpu, uint64_t period_ns, uint64_t round_count)
{
	uint64_t due_ns = now_ns();

	pin(cpu);
	while (due_ns < end_ns) {
		due_ns += period_ns;
		sleep_until(due_ns);
		sample(now_ns() - due_ns);
		compute(round_count);
		count_operation();
	}
}

static void round_trips(unsigned int least_us, unsigned int most_us, int timeout_ms)
{
	const struct service service = { .timeout_ms = timeout_ms };
	struct channel there = channel(), back = channel();

	serve(1, there, back, &service);
	pin(0);
	do {
		if (most_us)
			sleep_us(least_us, most_us);
		put(there, now_ns());
		take(back, timeout_ms);
		count_operation();
	} while (now_ns() < end_ns);
	put(there, 0);
}

static void pingpong(void)
{
	round_trips(0, 0, 0);
}

static void requests(void)
{
	round_trips(20, 400, 0);
}

static void far_timers(void)
{
	round_trips(20, 400, 50);
}

static void bursts(void)
{
	const struct service service = { 0 };
	struct channel there = channel(), back = channel();

	serve(1, there, back, &service);
	pin(0);
	do {
		sleep_us(1000, 6000);
		for (int i = 0; i < 20; i++) {
			put(there, now_ns());
			take(back, 0);
			count_operation();
		}
	} while (now_ns() < end_ns);
	put(there, 0);
}

/* The task on CPU 1 asks one on CPU 0. Both sample. */
static void ask(const struct service *service, unsigned int least_us, unsigned int most_us)
{
	struct channel there = channel(), back = channel();
	uint64_t at_ns;

	serve(0, there, back, service);
	pin(1);
	do {
		if (most_us)
			sleep_us(least_us, most_us);
		put(there, now_ns());
		at_ns = take(back, 0);
		sample(now_ns() - at_ns);
		compute(2000);
		count_operation();
	} while (now_ns() < end_ns);
	put(there, 0);
}

static void alternating(void)
{
	const struct service service = { .least_us = 20, .most_us = 400 };

	ask(&service, 100, 300);
}

static void disk(void)
{
	const struct service service = {
		.least_us = 80, .most_us = 120, .rare = 15, .rare_least_us = 3000, .rare_most_us = 9000,
	};

	ask(&service, 0, 0);
}

static void pipeline(void)
{
	struct channel there = channel(), back = channel();

	if (is_new_task()) {
		uint64_t at_ns;

		pin(1);
		while ((at_ns = take(there, 0))) {
			sample(now_ns() - at_ns);
			compute(5000 + random_below(30000));
			put(back, now_ns());
		}
		_exit(0);
	}
	pin(0);
	do {
		compute(5000 + random_below(30000));
		put(there, now_ns());
		take(back, 0);
		count_operation();
	} while (now_ns() < end_ns);
	put(there, 0);
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
		if (is_new_task()) {
			/* A pair's receiver; the senders write to all pairs in turn. */
			for (int j = 0; j < PAIR_COUNT; j++)
				close(pairs[j][1]);
			while (read(pairs[i][0], message, MESSAGE_BYTES) > 0)
				;
			_exit(0);
		}
		if (is_new_task()) {
			for (int j = i; now_ns() < end_ns; j = (j + 1) % PAIR_COUNT) {
				if (write(pairs[j][1], message, MESSAGE_BYTES) != MESSAGE_BYTES)
					err(2, "message");
				count_operation();
			}
			_exit(0);
		}
	}
	for (int i = 0; i < PAIR_COUNT; i++) {
		close(pairs[i][0]);
		close(pairs[i][1]);
	}
}

static void schbench(void)
{
	enum { WORKER_COUNT = 4 };
	struct channel wake[WORKER_COUNT], done = channel();

	for (int i = 0; i < WORKER_COUNT; i++) {
		wake[i] = channel();
		if (is_new_task()) {
			uint64_t at_ns;

			run_on(0, 1);
			while ((at_ns = take(wake[i], 0))) {
				sample(now_ns() - at_ns);
				compute(20000);
				put(done, now_ns());
			}
			_exit(0);
		}
	}
	pin(0);
	do {
		sleep_us(100, 1000);
		for (int i = 0; i < WORKER_COUNT; i++)
			put(wake[i], now_ns());
		for (int i = 0; i < WORKER_COUNT; i++) {
			take(done, 0);
			count_operation();
		}
	} while (now_ns() < end_ns);
	for (int i = 0; i < WORKER_COUNT; i++)
		put(wake[i], 0);
}

static void periodic(void)
{
	wake_periodically(1, 1000000, 20000);
}

static void cyclictest(void)
{
	if (is_new_task()) {
		wake_periodically(0, 1500000, 0);
		_exit(0);
	}
	wake_periodically(1, 1000000, 0);
}

static void audio(void)
{
	struct channel there = channel();
	uint64_t due_ns = now_ns();

	if (is_new_task()) {
		uint64_t at_ns;

		pin(0);
		while ((at_ns = take(there, 0))) {
			sample(now_ns() - at_ns);
			compute(50000);
		}
		_exit(0);
	}
	pin(1);
	while (due_ns < end_ns) {
		/* 128 frames at 48 kHz. */
		due_ns += 2666667;
		sleep_until(due_ns);
		sample(now_ns() - due_ns);
		compute(100000);
		put(there, now_ns());
		count_operation();
	}
	put(there, 0);
}

static void mixture(void)
{
	for (int cpu = 0; cpu < 2; cpu++) {
		if (!is_new_task())
			continue;
		pin(cpu);
		for (uint64_t due_ns = now_ns(); due_ns < end_ns;) {
			due_ns += 1000000 + cpu * 3000000;
			sleep_until(due_ns);
			compute(10000);
		}
		_exit(0);
	}
	round_trips(20, 1500, 0);
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

		sleep_us(50, 600);
		at_ns = now_ns();
		if (read(event, &count, sizeof(count)) != sizeof(count))
			err(2, "read of a counter");
		sample(now_ns() - at_ns);
		count_operation();
	}
}

static void idle(void)
{
	sleep_until(end_ns);
}

static const struct load {
	const char *name, *what;
	void (*run)(void);
} loads[] = {
	{ "pingpong", "round trips over two pipes between a task on each CPU", pingpong },
	{ "requests", "the same, and the client sleeps 20 to 400 us between them", requests },
	{ "far-timers", "the same, and both wait with a timeout of 50 ms", far_timers },
	{ "bursts", "20 round trips, then 1 to 6 ms of sleep", bursts },
	{ "alternating", "a task that sleeps 100 to 300 us, then waits 20 to 400 us for an answer", alternating },
	{ "disk", "answers after 80 to 120 us, and 15 of 100 after 3 to 9 ms", disk },
	{ "pipeline", "a task on each CPU computes 5 to 35 thousand rounds, then passes its turn", pipeline },
	{ "hackbench", "messages from eight tasks to eight others over socket pairs, on any CPU", hackbench },
	{ "schbench", "four workers on any CPU, woken together 100 to 1000 us after they are done", schbench },
	{ "periodic", "a task on CPU 1 that wakes each millisecond and computes a little", periodic },
	{ "cyclictest", "a task on each CPU that wakes each 1 and 1.5 ms and does nothing", cyclictest },
	{ "audio", "a task on CPU 1 that wakes each 2.7 ms, computes, and wakes one on CPU 0", audio },
	{ "mixture", "requests 20 to 1500 us apart, and a task on each CPU that wakes each 1 and 4 ms", mixture },
	{ "interrupts", "CPU 0 interrupts CPU 1 every 50 to 600 us; no task runs there", interrupts },
	{ "idle", "nothing", idle },
};

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

static unsigned int percentile(uint64_t count, unsigned int percent)
{
	return count ? result->samples_ns[(count - 1) * percent / 100] : 0;
}

static const struct load *load_named(const char *name)
{
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		if (!strcmp(loads[i].name, name))
			return &loads[i];
	}
	fprintf(stderr, "usage: work LOAD MILLISECONDS [SEED], with a load of these:\n");
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
		fprintf(stderr, "  %-12s %s\n", loads[i].name, loads[i].what);
	exit(2);
}

int main(int argc, char **argv)
{
	const struct load *load = load_named(argc > 2 ? argv[1] : "");
	int64_t totals[STATE_COUNT_MAX][COUNTER_COUNT] = { 0 };
	uint64_t start_ns, sample_count;
	int state_count;

	result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE,
		      -1, 0);
	if (result == MAP_FAILED)
		err(2, "mmap");
	prctl(PR_SET_TIMERSLACK, 1);
	if (argc > 3) {
		seed ^= strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15;
		sleep_us(0, 4000);
	}
	count_states(totals, -1);
	start_ns = now_ns();
	end_ns = start_ns + strtoull(argv[2], NULL, 10) * 1000000;
	load->run();
	while (wait(NULL) > 0)
		;
	end_ns = now_ns();
	state_count = count_states(totals, 1);
	sample_count = result->sample_count < SAMPLE_COUNT_MAX ? result->sample_count : SAMPLE_COUNT_MAX;
	qsort(result->samples_ns, sample_count, sizeof(uint32_t), by_size);
	printf("%llu %llu %u %u %llu", (unsigned long long)result->operation_count,
	       (unsigned long long)(end_ns - start_ns), percentile(sample_count, 50),
	       percentile(sample_count, 99), (unsigned long long)sample_count);
	for (int i = 0; i < state_count * COUNTER_COUNT; i++)
		printf(" %lld", (long long)totals[i / COUNTER_COUNT][i % COUNTER_COUNT]);
	printf("\n");
	return 0;
}
