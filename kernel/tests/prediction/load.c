// SPDX-License-Identifier: GPL-2.0
/*
 * Workloads whose speed depends on idle states: `load KIND COUNT`. Each does COUNT operations on two CPUs, prints
 * `KIND COUNT NS`, and is the same in every run.
 */
#define _GNU_SOURCE
#include "../load.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* Round trips between two CPUs. How long an answer takes changes from time to time, as habits do. */
static void pingpong(long count)
{
	int pipes[2][2];
	long ns = 0;

	make_pipes(pipes, 2);
	if (starts(1)) {
		for (long i = 0; i < count; i++) {
			if (i % 25 == 0)
				ns = random_ns(2, 6);
			take(pipes[0][0]);
			compute(ns / 2 + random_below(ns));
			give(pipes[1][1]);
		}
		exit(0);
	}
	for (long i = 0; i < count; i++) {
		compute(random_ns(1, 3));
		give(pipes[0][1]);
		take(pipes[1][0]);
	}
}

/* A request goes through three tasks; the first and the last share a CPU. */
static void chain(long count)
{
	int pipes[3][2];

	make_pipes(pipes, 3);
	for (int stage = 1; stage < 3; stage++) {
		if (!starts(stage == 1))
			continue;
		for (long i = 0; i < count; i++) {
			take(pipes[stage - 1][0]);
			compute(random_ns(3, 4));
			give(pipes[stage][1]);
		}
		exit(0);
	}
	for (long i = 0; i < count; i++) {
		compute(random_ns(2, 3));
		give(pipes[0][1]);
		take(pipes[2][0]);
	}
}

/* Requests over loopback, with time to think after each answer. */
static void rpc(long count)
{
	struct sockaddr_in address;
	int listener = listens(&address), connection;

	if (starts(1)) {
		connection = without_delay(accept(listener, NULL, NULL));
		for (long i = 0; i < count; i++) {
			take(connection);
			compute(random_ns(4, 4));
			give(connection);
		}
		exit(0);
	}
	connection = connects(&address);
	for (long i = 0; i < count; i++) {
		give(connection);
		take(connection);
		sleep_ns(random_ns(5, 6));
	}
}

/* Points in time on one CPU, spans on the other. */
static void periodic(long count)
{
	struct timespec at;

	if (starts(1)) {
		for (long i = 0; i < count; i++) {
			sleep_ns(300000 + random_below(100000));
			compute(random_ns(4, 3));
		}
		exit(0);
	}
	clock_gettime(CLOCK_MONOTONIC, &at);
	for (long i = 0; i < count; i++) {
		wait_for_next(&at, 400000);
		compute(random_ns(4, 4));
	}
}

/* Two groups of senders and receivers, each pair of tasks over a pipe of its own. */
static void hackbench(long count)
{
	int pipes[4][2];

	make_pipes(pipes, 4);
	for (int pair = 0; pair < 4; pair++) {
		if (starts(pair % 2)) {
			seed += pair;
			for (long i = 0; i < count; i++) {
				compute(random_ns(1, 4));
				give(pipes[pair][1]);
				if (i % 8 == 7)
					sleep_ns(random_ns(6, 4));
			}
			exit(0);
		}
		if (starts(1 - pair % 2)) {
			seed += 10 + pair;
			for (long i = 0; i < count; i++) {
				take(pipes[pair][0]);
				compute(random_ns(1, 4));
			}
			exit(0);
		}
	}
}

/*
 * CPU 1 asks and waits without any timer of its own; what answers is interrupted on CPU 0, as by a device. So CPU 1
 * stops its tick, and its next timer says nothing.
 */
static void elsewhere(long count)
{
	int pipes[2][2];

	make_pipes(pipes, 2);
	if (starts(1)) {
		for (long i = 0; i < count; i++) {
			compute(random_ns(2, 3));
			give(pipes[0][1]);
			take(pipes[1][0]);
			if (i % 40 == 39)
				sleep_ns(9000000);
		}
		exit(0);
	}
	for (long i = 0; i < count; i++) {
		take(pipes[0][0]);
		sleep_ns(120000 + random_below(120000));
		give(pipes[1][1]);
	}
}

static void mix(long count)
{
	if (!fork()) {
		pin(0);
		elsewhere(count / 2);
		while (wait(NULL) > 0)
			;
		exit(0);
	}
	if (!fork()) {
		pin(0);
		periodic(count / 2);
		while (wait(NULL) > 0)
			;
		exit(0);
	}
	rpc(count / 2);
}

static const struct {
	const char *name;
	void (*run)(long count);
} kinds[] = {
	{ "pingpong", pingpong }, { "chain", chain },         { "rpc", rpc }, { "periodic", periodic },
	{ "hackbench", hackbench }, { "elsewhere", elsewhere }, { "mix", mix },
};

int main(int argc, char **argv)
{
	long count = argc == 3 ? atol(argv[2]) : 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (count <= 0 || strcmp(argv[1], kinds[i].name))
			continue;
		pin(0);

		int64_t from = now_ns(CLOCK_MONOTONIC);

		kinds[i].run(count);
		while (wait(NULL) > 0)
			;
		printf("%s %ld %lld\n", argv[1], count, (long long)(now_ns(CLOCK_MONOTONIC) - from));
		return 0;
	}
	errx(2, "usage: load pingpong|chain|rpc|periodic|hackbench|elsewhere|mix COUNT");
}
