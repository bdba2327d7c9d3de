// SPDX-License-Identifier: GPL-2.0
/*
 * Idle periods of all lengths. `mix SECONDS SHORTEST_US` waits on two CPUs for SHORTEST_US to 40 ms
 * (evenly in logarithms), computes a little in between, and sometimes ends the other task's wait.
 */
#define _GNU_SOURCE
#include <err.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed;
static double shortest_us = 20.0;

static uint64_t random_below(uint64_t bound)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return (seed * 0x2545f4914f6cdd1dULL >> 33) % bound;
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static void run(int cpu, double until_s, int from, int to)
{
	struct pollfd bell = { .fd = from, .events = POLLIN };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(2, "sched_setaffinity to CPU %d", cpu);
	prctl(PR_SET_TIMERSLACK, 1);
	seed = 77 + cpu;
	while (now_s() < until_s) {
		/* Habits: a few dozen waits of similar length, as real tasks have. */
		double typical_us =
			shortest_us * pow(40000.0 / shortest_us, random_below(1000) / 1000.0);
		uint64_t round_count = 8 + random_below(24);

		while (round_count-- && now_s() < until_s) {
			long span_us = typical_us * (0.8 + random_below(400) / 1000.0);
			struct timespec span = { 0, span_us * 1000 };
			char bytes[16];

			if (ppoll(&bell, 1, &span, NULL) == 1 && read(from, bytes, sizeof(bytes)) < 1)
				err(2, "read");
			for (uint64_t i = random_below(20000); i; i--)
				__asm__("" : : "r"(i));
			if (!random_below(8) && write(to, bytes, 1) != 1)
				err(2, "write");
		}
	}
}

int main(int argc, char **argv)
{
	double until_s = now_s() + (argc > 1 ? atof(argv[1]) : 1.0);
	int there[2], back[2];

	if (argc > 2)
		shortest_us = atof(argv[2]);
	if (pipe(there) || pipe(back))
		err(2, "pipe");
	if (!fork()) {
		run(1, until_s, there[0], back[1]);
		return 0;
	}
	run(0, until_s, back[0], there[1]);
	wait(NULL);
	return 0;
}
