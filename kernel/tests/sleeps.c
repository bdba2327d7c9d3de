// SPDX-License-Identifier: GPL-2.0
/*
 * Mispredicted idle periods. `sleeps ROUNDS SHORT_US SHORT_COUNT LONG_US` sleeps on CPU 1
 * SHORT_COUNT times briefly and once long, ROUNDS times.
 */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static void sleep_us(long us)
{
	struct timespec span = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&span, NULL);
}

int main(int argc, char **argv)
{
	cpu_set_t set;
	long rounds, i;

	if (argc != 5)
		errx(2, "usage: sleeps ROUNDS SHORT_US SHORT_COUNT LONG_US");
	CPU_ZERO(&set);
	CPU_SET(1, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(2, "sched_setaffinity");
	prctl(PR_SET_TIMERSLACK, 1);
	for (rounds = atol(argv[1]); rounds; rounds--) {
		for (i = atol(argv[3]); i; i--)
			sleep_us(atol(argv[2]));
		sleep_us(atol(argv[4]));
	}
	return 0;
}
