/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What loads for emulated machines share. What they compute takes CPU time, not instructions, and pauses: in an emulator
 * that runs one CPU at a time, the others go on meanwhile.
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed = 1;

static uint64_t random_below(uint64_t bound)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return (seed * 0x2545f4914f6cdd1dULL >> 33) % bound;
}

/* From 2^least to 2^(least + octaves) us, evenly in logarithms up to a factor of 2. */
static long random_ns(int least, int octaves)
{
	long ns = 1000L << (least + random_below(octaves));

	return ns + random_below(ns);
}

static int64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void pause_briefly(void)
{
#ifdef __aarch64__
	asm volatile("yield");
#else
	__builtin_ia32_pause();
#endif
}

static void compute(long ns)
{
	int64_t end = now_ns(CLOCK_THREAD_CPUTIME_ID) + ns;

	while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		for (int i = 0; i < 4; i++)
			pause_briefly();
}

static void sleep_ns(long ns)
{
	struct timespec span = { ns / 1000000000, ns % 1000000000 };

	nanosleep(&span, NULL);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(2, "sched_setaffinity to CPU %d", cpu);
	prctl(PR_SET_TIMERSLACK, 1);
	seed = 77 + cpu;
}

/* Starts a task on a CPU. Returns whether this is it. */
static int starts(int cpu)
{
	pid_t pid = fork();

	if (pid < 0)
		err(2, "fork");
	if (!pid)
		pin(cpu);
	return !pid;
}

static void take(int from)
{
	char byte;

	if (read(from, &byte, 1) != 1)
		err(2, "read");
}

static void give(int to)
{
	if (write(to, "", 1) != 1)
		err(2, "write");
}

static void make_pipes(int (*pipes)[2], int count)
{
	while (count--)
		if (pipe(pipes[count]))
			err(2, "pipe");
}

/* A socket that listens on loopback, and its address. */
static int listens(struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	*address = (struct sockaddr_in){ .sin_family = AF_INET };
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || bind(listener, (void *)address, length) || listen(listener, 16) ||
	    getsockname(listener, (void *)address, &length))
		err(2, "listen");
	return listener;
}

static int without_delay(int connection)
{
	int one = 1;

	if (setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		err(2, "TCP_NODELAY");
	return connection;
}

static int connects(const struct sockaddr_in *address)
{
	int connection = socket(AF_INET, SOCK_STREAM, 0);

	if (connection < 0 || connect(connection, (void *)address, sizeof(*address)))
		err(2, "connect");
	return without_delay(connection);
}

/* Waits for a point in time, `period_ns` after the last one. */
static void wait_for_next(struct timespec *at, long period_ns)
{
	at->tv_nsec += period_ns;
	if (at->tv_nsec >= 1000000000) {
		at->tv_nsec -= 1000000000;
		at->tv_sec++;
	}
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, NULL);
}
