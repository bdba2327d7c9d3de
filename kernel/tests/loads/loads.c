// SPDX-License-Identifier: GPL-2.0
/*
 * Loads that no small program of Debian's makes: `loads KIND COUNT [PORT LINE]`. Each is the same in every run.
 */
#define _GNU_SOURCE
#include "../load.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static long cpu_count;
static const char *port, *line;

/* Answers what comes from the first pipe through the second, after work of random_ns(least, octaves). */
static _Noreturn void answers(int (*pipes)[2], long count, int least, int octaves)
{
	while (count-- > 0) {
		take(pipes[0][0]);
		compute(random_ns(least, octaves));
		give(pipes[1][1]);
	}
	exit(0);
}

/* A sound card's period of 2.7 ms: one task mixes, another has an effect to apply before the first may go on. */
static void audio(long count)
{
	int pipes[2][2];
	struct timespec at;

	make_pipes(pipes, 2);
	if (starts(1))
		answers(pipes, count, 5, 2);
	clock_gettime(CLOCK_MONOTONIC, &at);
	for (long i = 0; i < count; i++) {
		wait_for_next(&at, 2666667);
		compute(random_ns(6, 2));
		give(pipes[0][1]);
		take(pipes[1][0]);
		compute(20000);
	}
}

/* A compositor with a client, a mouse that moves now and then, and programs that look for news. */
static void desktop(long count)
{
	static const long poll_ms[] = { 10, 33, 100, 250 };
	int pipes[2][2];
	struct timespec at;

	make_pipes(pipes, 2);
	for (int i = 0; i < 4; i++) {
		if (!starts(i % cpu_count))
			continue;
		seed += i;
		for (long left = count * 16666667 / (poll_ms[i] * 1000000); left > 0; left--) {
			sleep_ns(poll_ms[i] * 1000000);
			compute(random_ns(5, 3));
		}
		exit(0);
	}
	if (starts(1)) {
		seed += 5;
		for (long i = 0; i < count; i++) {
			sleep_ns(i % 40 == 39 ? 300000000 : 8000000);
			compute(random_ns(4, 2));
		}
		exit(0);
	}
	if (starts(1))
		answers(pipes, count, 8, 2);
	clock_gettime(CLOCK_MONOTONIC, &at);
	for (long i = 0; i < count; i++) {
		wait_for_next(&at, 16666667);
		give(pipes[0][1]);
		take(pipes[1][0]);
		compute(random_ns(9, 2));
	}
}

/* Answers come long before the timeouts, which are then cancelled. */
static void timeouts(long count)
{
	static const struct timespec timeout = { 0, 30000000 };
	int pipes[2][2];

	make_pipes(pipes, 2);
	if (starts(1))
		answers(pipes, count, 4, 4);
	for (long i = 0; i < count; i++) {
		struct pollfd answer = { .fd = pipes[1][0], .events = POLLIN };

		give(pipes[0][1]);
		if (ppoll(&answer, 1, &timeout, NULL) != 1)
			errx(2, "no answer");
		take(pipes[1][0]);
		if (i % 4 == 3)
			sleep_ns(random_ns(6, 4));
	}
}

/* Every 50 events, others of the pauses that both CPUs have. */
static void phases(long count)
{
	static const long pause_ns[] = { 30000, 3000000, 300000, 100000, 1000000 };
	int pipes[1][2];

	make_pipes(pipes, 1);
	if (starts(1)) {
		for (long i = 0; i < count; i++) {
			take(pipes[0][0]);
			compute(random_ns(2, 4));
		}
		exit(0);
	}
	for (long i = 0; i < count; i++) {
		long ns = pause_ns[i / 50 % 5];

		sleep_ns(ns / 2 + random_below(ns));
		compute(random_ns(2, 3));
		give(pipes[0][1]);
	}
}

static void unix_sockets(long count)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		err(2, "socketpair");
	if (starts(1)) {
		for (long i = 0; i < count; i++) {
			take(ends[1]);
			compute(random_ns(2, 5));
			give(ends[1]);
		}
		exit(0);
	}
	for (long i = 0; i < count; i++) {
		compute(random_ns(1, 4));
		give(ends[0]);
		take(ends[0]);
	}
}

static void wait_while(uint32_t *word, uint32_t value)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
		syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void post(uint32_t *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Two pairs of tasks; the second takes four times as long for each answer. */
static void futexes(long count)
{
	uint32_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (words == MAP_FAILED)
		err(2, "mmap");
	for (int cpu = 0; cpu < 4; cpu++) {
		uint32_t *own = &words[cpu * 16], *other = &words[(cpu ^ 1) * 16];
		int pair = cpu / 2;

		if (!starts(cpu % cpu_count))
			continue;
		for (uint32_t i = 0; i < count >> 2 * pair; i++) {
			if (cpu % 2)
				wait_while(own, i);
			compute(random_ns(2 + 2 * pair, 4));
			post(other);
			if (cpu % 2 == 0)
				wait_while(own, i);
		}
		exit(0);
	}
}

/* Datagrams to a port where nobody listens. */
static void refused(long count)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(9) };
	bool is_second = starts(1);
	int to = socket(AF_INET, SOCK_DGRAM, 0);
	char byte = 0;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (to < 0 || connect(to, (void *)&address, sizeof(address)))
		err(2, "connect");
	for (long i = 0; i < count; i++) {
		for (long left = 1 + random_below(4); left > 0; left--) {
			send(to, &byte, 1, 0);
			recv(to, &byte, 1, 0);
			compute(random_ns(2, 3));
		}
		sleep_ns(random_ns(6, 5));
	}
	if (is_second)
		exit(0);
}

static struct {
	pthread_mutex_t lock;
	pthread_cond_t is_filled;
	long ns[64], first, last;
} jobs = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, { 0 }, 0, 0 };

static void *works(void *nothing)
{
	for (;;) {
		long ns;

		pthread_mutex_lock(&jobs.lock);
		while (jobs.first == jobs.last)
			pthread_cond_wait(&jobs.is_filled, &jobs.lock);
		ns = jobs.ns[jobs.first++ % 64];
		pthread_mutex_unlock(&jobs.lock);
		if (!ns)
			return nothing;
		compute(ns);
	}
}

static void add_job(long ns)
{
	pthread_mutex_lock(&jobs.lock);
	jobs.ns[jobs.last++ % 64] = ns;
	pthread_cond_signal(&jobs.is_filled);
	pthread_mutex_unlock(&jobs.lock);
}

/* Threads, on any CPU, that wait for jobs; these come several at once. */
static void pool(long count)
{
	pthread_t threads[4];
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	if (sched_setaffinity(0, sizeof(all), &all))
		err(2, "sched_setaffinity to all CPUs");
	for (int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, works, NULL))
			errx(2, "pthread_create");
	for (long i = 0; i < count; i++) {
		for (long left = 1 + random_below(5); left > 0; left--)
			add_job(random_ns(4, 5));
		sleep_ns(random_ns(8, 4));
	}
	for (int i = 0; i < 4; i++)
		add_job(0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

/* Clients of a server that answers lines, on all CPUs but the first. */
static void ask(long count)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int client = 0; client < 4; client++) {
		char answer[4096];
		int to;

		if (!starts(1 + client % (cpu_count - 1)))
			continue;
		seed += 10 * client;
		to = connects(&address);
		for (long i = 0; i < count; i++) {
			dprintf(to, "%s\r\n", line);
			if (read(to, answer, sizeof(answer)) <= 0)
				err(2, "read from port %s", port);
			compute(random_ns(2, 3));
			sleep_ns(random_ns(7, 5));
		}
		exit(0);
	}
}

/* A server with epoll, and clients that think after each answer. */
static void epolls(long count)
{
	struct sockaddr_in address;
	int listener = listens(&address), epoll = epoll_create1(0), open_count = 6;

	for (int client = 0; client < 6; client++) {
		if (!starts(1 + client % (cpu_count - 1)))
			continue;
		int to = connects(&address);

		seed += 10 * client;
		for (long i = 0; i < count; i++) {
			give(to);
			take(to);
			sleep_ns(random_ns(6, 6));
		}
		exit(0);
	}
	for (int client = 0; client < 6; client++) {
		int from = without_delay(accept(listener, NULL, NULL));
		struct epoll_event wish = { .events = EPOLLIN, .data.fd = from };

		if (epoll_ctl(epoll, EPOLL_CTL_ADD, from, &wish))
			err(2, "epoll_ctl");
	}
	while (open_count) {
		struct epoll_event ready[6];
		int ready_count = epoll_wait(epoll, ready, 6, -1);

		for (int i = 0; i < ready_count; i++) {
			char byte;

			if (read(ready[i].data.fd, &byte, 1) == 1) {
				compute(random_ns(3, 4));
				give(ready[i].data.fd);
			} else {
				close(ready[i].data.fd);
				open_count--;
			}
		}
	}
}

/* Each request asks three others at once, and waits for the slowest. */
static void fan_out(long count)
{
	struct sockaddr_in address;
	int listener = listens(&address), others[3];

	for (int i = 0; i < 3; i++) {
		if (starts((1 + i) % cpu_count)) {
			int from = connects(&address);

			seed += 10 * i;
			for (long left = count; left > 0; left--) {
				take(from);
				compute(random_ns(4, 5));
				give(from);
			}
			exit(0);
		}
		others[i] = without_delay(accept(listener, NULL, NULL));
	}
	for (long i = 0; i < count; i++) {
		compute(random_ns(3, 2));
		for (int to = 0; to < 3; to++)
			give(others[to]);
		for (int from = 0; from < 3; from++)
			take(others[from]);
		compute(random_ns(3, 2));
		sleep_ns(random_ns(5, 6));
	}
}

/* Timers of all lengths, on each CPU its own. */
static void random_timers(long count)
{
	for (int cpu = 0; cpu < cpu_count; cpu++) {
		if (!starts(cpu))
			continue;
		for (long i = 0; i < count; i++) {
			sleep_ns(random_ns(4, 9));
			compute(random_ns(1, 6));
		}
		exit(0);
	}
}

/* Now and then, all CPUs work for three rounds; each round waits for the slowest. */
static void bursts(long count)
{
	int begin[8][2], end[1][2];

	make_pipes(begin, cpu_count);
	make_pipes(end, 1);
	for (int cpu = 0; cpu < cpu_count; cpu++) {
		if (!starts(cpu))
			continue;
		for (long i = 0; i < 3 * count; i++) {
			take(begin[cpu][0]);
			compute(random_ns(6, 4));
			give(end[0][1]);
		}
		exit(0);
	}
	for (long i = 0; i < 3 * count; i++) {
		for (int cpu = 0; cpu < cpu_count; cpu++)
			give(begin[cpu][1]);
		for (int cpu = 0; cpu < cpu_count; cpu++)
			take(end[0][0]);
		if (i % 3 == 2)
			sleep_ns(random_ns(11, 4));
	}
}

/* Two tasks that read at random, past the page cache. */
static void disk(long count)
{
	for (int cpu = 0; cpu < 2; cpu++) {
		if (!starts(cpu))
			continue;
		int from = open("/dev/nullb0", O_RDONLY | O_DIRECT);
		void *block = aligned_alloc(4096, 4096);

		for (long i = 0; i < count; i++) {
			if (pread(from, block, 4096, random_below(4096) * 4096) != 4096)
				err(2, "pread");
			compute(random_ns(2, 4));
			if (i % 16 == 15)
				sleep_ns(random_ns(9, 3));
		}
		exit(0);
	}
}

/* Rows for a database, with time to think between them. */
static void insert(long count)
{
	for (long i = 0; i < count; i++) {
		if (dprintf(1, "INSERT INTO t VALUES(%ld, 'a row of the table');\n", i) < 0)
			err(2, "write");
		sleep_ns(random_ns(8, 4));
	}
}

static const struct {
	const char *name;
	void (*run)(long count);
} kinds[] = {
	{ "audio", audio },     { "desktop", desktop }, { "timeouts", timeouts }, { "phases", phases },
	{ "unix", unix_sockets }, { "futex", futexes }, { "refused", refused },   { "pool", pool },
	{ "ask", ask },         { "epoll", epolls },    { "fan-out", fan_out },   { "random", random_timers },
	{ "bursts", bursts },   { "disk", disk },       { "insert", insert },
};

int main(int argc, char **argv)
{
	long count = argc > 2 ? atol(argv[2]) : 0;

	cpu_count = sysconf(_SC_NPROCESSORS_ONLN);
	if (argc == 5) {
		port = argv[3];
		line = argv[4];
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (count <= 0 || strcmp(argv[1], kinds[i].name) || (kinds[i].run == ask) != (argc == 5))
			continue;
		pin(0);
		kinds[i].run(count);
		while (wait(NULL) > 0)
			;
		return 0;
	}
	errx(2, "usage: loads KIND COUNT [PORT LINE]");
}
