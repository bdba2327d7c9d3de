// SPDX-License-Identifier: GPL-2.0
/*
 * Idle periods of all lengths. `mix SECONDS SHORTEST_US` waits on two CPUs for SHORTEST_US to 40 ms
 * (evenly in logarithms), computes a little in between, and sometimes ends the other task's wait.
 */
#define _GNU_SOURCE
#include "load.h"

#include <math.h>
#include <poll.h>
#include <sys/wait.h>

static double shortest_us = 20.0;

static double now_s(void)
{
	return now_ns(CLOCK_MONOTONIC) * 1e-9;
}

static void run(int cpu, double until_s, int from, int to)
{
	struct pollfd bell = { .fd = from, .events = POLLIN };

	pin(cpu);
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
