// SPDX-License-Identifier: GPL-2.0
/*
 * Mispredicted idle periods. `sleeps ROUNDS SHORT_US SHORT_COUNT LONG_US` sleeps on CPU 1
 * SHORT_COUNT times briefly and once long, ROUNDS times.
 */
#define _GNU_SOURCE
#include "load.h"

int main(int argc, char **argv)
{
	long rounds, i;

	if (argc != 5)
		errx(2, "usage: sleeps ROUNDS SHORT_US SHORT_COUNT LONG_US");
	pin(1);
	for (rounds = atol(argv[1]); rounds; rounds--) {
		for (i = atol(argv[3]); i; i--)
			sleep_ns(atol(argv[2]) * 1000);
		sleep_ns(atol(argv[4]) * 1000);
	}
	return 0;
}
