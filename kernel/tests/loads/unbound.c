// SPDX-License-Identifier: GPL-2.0
/*
 * Loads whose tasks run where the scheduler puts them, with the default timer slack: `unbound KIND COUNT`. Each ends after
 * COUNT operations, prints nothing, and draws the same random numbers in every run. The kinds before `forks` are made
 * with, the others are kept apart.
 */
#define _GNU_SOURCE
/* What pins tasks, and the random numbers that threads cannot share, stay unused. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "../load.h"
#pragma GCC diagnostic pop

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

#include "tasks.h"

static void draw_for(uint64_t index)
{
	sequence = (index + 1) * 0x9e3779b97f4a7c15ULL;
}

/* Returns whether the other end still sends. */
static bool receives(int from, void *data, ssize_t size)
{
	ssize_t received = recv(from, data, size, MSG_WAITALL);

	if (received && received != size)
		err(2, "recv");
	return received;
}

static int makes_semaphore(int value)
{
	int semaphore = eventfd(value, EFD_SEMAPHORE);

	if (semaphore < 0)
		err(2, "eventfd");
	return semaphore;
}

static void down(int semaphore)
{
	uint64_t value;

	if (read(semaphore, &value, sizeof(value)) != sizeof(value))
		err(2, "read from an eventfd");
}

static void up(int semaphore)
{
	uint64_t value = 1;

	if (write(semaphore, &value, sizeof(value)) != sizeof(value))
		err(2, "write to an eventfd");
}

struct buffer {
	int free, filled, lock;
	long first, last, ns[8];
};

static void put(struct buffer *buffer, long ns)
{
	down(buffer->free);
	down(buffer->lock);
	buffer->ns[buffer->last++ % 8] = ns;
	up(buffer->lock);
	up(buffer->filled);
}

/* COUNT items from a steady producer and one that makes 12 in a row, for two consumers; an item of 0 ns ends one. */
static void bounded_buffer(long count)
{
	struct buffer *buffer = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (buffer == MAP_FAILED)
		err(2, "mmap");
	*buffer = (struct buffer){ makes_semaphore(8), makes_semaphore(0), makes_semaphore(1), 0, 0, { 0 } };
	for (int i = 0; i < 2; i++) {
		if (!start_process("producer", i)) {
			for (long item = 0; item < count / 2; item++) {
				compute(lognormal_ns(30000, 0.5));
				put(buffer, 1000 + lognormal_ns(150000, 0.7));
				if (i == 0)
					sleep_ns(exponential_ns(1000000));
				else if (item % 12 == 11)
					sleep_ns(between(8000000, 16000000));
			}
			put(buffer, 0);
			exit(0);
		}
		if (!start_process("consumer", 2 + i)) {
			for (long ns = 1; ns; compute(ns)) {
				down(buffer->filled);
				down(buffer->lock);
				ns = buffer->ns[buffer->first++ % 8];
				up(buffer->lock);
				up(buffer->free);
			}
			exit(0);
		}
	}
}

static struct {
	pthread_mutex_t lock;
	pthread_cond_t has_changed;
	long record_count;
	bool is_over;
	int to;
} journal = { .lock = PTHREAD_MUTEX_INITIALIZER, .has_changed = PTHREAD_COND_INITIALIZER };

static void control_loop(const struct task *task)
{
	struct itimerspec each_ms = { { 0, 1000000 }, { 0, 1000000 } };
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t expiration_count;

	if (timer < 0 || timerfd_settime(timer, 0, &each_ms, NULL))
		err(2, "timerfd");
	for (long i = 0; i < task->count; i++) {
		if (read(timer, &expiration_count, sizeof(expiration_count)) != sizeof(expiration_count))
			err(2, "read from a timerfd");
		compute(i % 40 == 39 ? 450000 : lognormal_ns(70000, 0.4));
		pthread_mutex_lock(&journal.lock);
		journal.record_count += is_one_in(3) ? between(1, 3) : 0;
		journal.is_over = i + 1 == task->count;
		if (journal.record_count || journal.is_over)
			pthread_cond_signal(&journal.has_changed);
		pthread_mutex_unlock(&journal.lock);
	}
}

static void log_records(const struct task *task)
{
	char record[64] = "";
	bool is_over = false;

	(void)task;
	while (!is_over) {
		long record_count;

		pthread_mutex_lock(&journal.lock);
		while (!journal.record_count && !journal.is_over)
			pthread_cond_wait(&journal.has_changed, &journal.lock);
		record_count = journal.record_count;
		journal.record_count = 0;
		is_over = journal.is_over;
		pthread_mutex_unlock(&journal.lock);
		while (record_count--) {
			compute(lognormal_ns(20000, 0.5));
			if (write(journal.to, record, sizeof(record)) != sizeof(record))
				err(2, "write to the pipe");
		}
	}
	close(journal.to);
}

/* COUNT periods of 1 ms. What is logged goes through a pipe to a process that stores 2 KiB at a time. */
static void control(long count)
{
	struct task tasks[] = { { "control", control_loop, count, 0, 0 }, { "logger", log_records, 0, 0, 0 } };
	int pipes[1][2];

	make_pipes(pipes, 1);
	if (!start_process("drain", 2)) {
		char data[2048];
		long stored_size = 0;
		ssize_t size;

		close(pipes[0][1]);
		while ((size = read(pipes[0][0], data, sizeof(data))) > 0) {
			compute(8000 + 100 * size);
			if (stored_size / 2048 != (stored_size + size) / 2048)
				sleep_ns(exponential_ns(1500000));
			stored_size += size;
		}
		exit(size < 0);
	}
	journal.to = pipes[0][1];
	run_threads(tasks, LENGTH(tasks));
}

/* Five clients make COUNT requests, each for so many bytes, and think after each answer. */
static void epolls(long count)
{
	static char data[16384];
	struct sockaddr_in address;
	int listener = listens(&address), epoll = epoll_create1(0), open_count = 5;
	struct epoll_event wish = { .events = EPOLLIN, .data.fd = listener }, ready[4];
	uint32_t size;

	for (int i = 0; i < 5; i++) {
		if (start_process("client", 1 + i))
			continue;
		int to = connects(&address);

		for (long left = count / 5; left > 0; left--) {
			size = 1 + lognormal_ns(1500, 1.0);
			size = size < sizeof(data) ? size : sizeof(data);
			sends(to, &size, sizeof(size));
			if (!receives(to, data, size))
				errx(2, "no answer");
			compute(5000 + 3 * size);
			sleep_ns(lognormal_ns(1500000, 1.0));
		}
		exit(0);
	}
	become("server", 0);
	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &wish))
		err(2, "epoll");
	while (open_count) {
		int ready_count = epoll_wait(epoll, ready, LENGTH(ready), -1);

		for (int i = 0; i < ready_count; i++) {
			if (ready[i].data.fd == listener) {
				wish.data.fd = without_delay(accept(listener, NULL, NULL));
				if (epoll_ctl(epoll, EPOLL_CTL_ADD, wish.data.fd, &wish))
					err(2, "epoll_ctl");
			} else if (receives(ready[i].data.fd, &size, sizeof(size))) {
				compute(exponential_ns(70000) + 10 * size);
				sends(ready[i].data.fd, data, size);
			} else {
				close(ready[i].data.fd);
				open_count--;
			}
		}
	}
}

static struct {
	uint32_t ready_count, left_count, taken_count;
	long ns[16];
} burst;

static void futex_wait(uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(uint32_t *word, int count)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* The submitter's jobs are in place before they count as ready, and stay there until none of the burst is left. */
static void work(const struct task *task)
{
	(void)task;
	for (;;) {
		uint32_t count = __atomic_load_n(&burst.ready_count, __ATOMIC_RELAXED);
		long ns;

		while (!count || !__atomic_compare_exchange_n(&burst.ready_count, &count, count - 1, true,
							      __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			if (count)
				continue;
			futex_wait(&burst.ready_count, 0);
			count = __atomic_load_n(&burst.ready_count, __ATOMIC_RELAXED);
		}
		ns = burst.ns[__atomic_fetch_add(&burst.taken_count, 1, __ATOMIC_RELAXED)];
		if (!ns)
			return;
		compute(ns);
		if (!__atomic_sub_fetch(&burst.left_count, 1, __ATOMIC_ACQ_REL))
			futex_wake(&burst.left_count, 1);
	}
}

static void start_burst(int job_count)
{
	burst.taken_count = 0;
	__atomic_store_n(&burst.left_count, job_count, __ATOMIC_RELAXED);
	__atomic_store_n(&burst.ready_count, job_count, __ATOMIC_RELEASE);
	futex_wake(&burst.ready_count, job_count);
}

static void submit(const struct task *task)
{
	for (long i = 0; i < task->count; i++) {
		int job_count = between(1, is_one_in(8) ? 16 : 5);
		uint32_t left_count;

		for (int job = 0; job < job_count; job++) {
			burst.ns[job] = 1000 + lognormal_ns(100000, 0.8);
			compute(5000);
		}
		start_burst(job_count);
		while ((left_count = __atomic_load_n(&burst.left_count, __ATOMIC_ACQUIRE)))
			futex_wait(&burst.left_count, left_count);
		compute(lognormal_ns(25000, 0.3));
		sleep_ns(100000 + exponential_ns(1200000));
	}
	memset(burst.ns, 0, sizeof(burst.ns));
	start_burst(3);
}

/* COUNT bursts of jobs; the next is made after all of the last are done. */
static void futex_pool(long count)
{
	struct task tasks[] = { { "worker", work, 0, 0, 0 },
				{ "worker", work, 0, 0, 0 },
				{ "worker", work, 0, 0, 0 },
				{ "submitter", submit, count, 0, 0 } };

	run_threads(tasks, LENGTH(tasks));
}

/* Two clients make COUNT requests, mostly at once after the last answer; some answers have to come from a disk. */
static void proxy(long count)
{
	static char data[4096];
	struct sockaddr_in front_address, back_address;
	int front = listens(&front_address), back = listens(&back_address), open_count = 2;
	struct pollfd ends[4];

	for (int i = 0; i < 2; i++) {
		if (!start_process("server", 1 + i)) {
			int from = without_delay(accept(back, NULL, NULL));

			while (receives(from, data, 512)) {
				compute(lognormal_ns(80000, 0.6));
				if (is_one_in(6))
					sleep_ns(exponential_ns(700000));
				sends(from, data, sizeof(data));
			}
			exit(0);
		}
		if (!start_process("client", 3 + i)) {
			int to = connects(&front_address);

			for (long left = count / 2; left > 0; left--) {
				sends(to, data, 512);
				if (!receives(to, data, sizeof(data)))
					errx(2, "no answer");
				compute(lognormal_ns(40000, 0.5));
				if (is_one_in(20))
					sleep_ns(lognormal_ns(1500000, 0.5));
			}
			exit(0);
		}
	}
	become("proxy", 0);
	for (int i = 0; i < 4; i++)
		ends[i] = (struct pollfd){ i % 2 ? connects(&back_address)
						 : without_delay(accept(front, NULL, NULL)), POLLIN, 0 };
	while (open_count && poll(ends, 4, -1) > 0) {
		for (int i = 0; i < 4; i++) {
			ssize_t size = ends[i].revents ? recv(ends[i].fd, data, sizeof(data), 0) : -1;

			if (size > 0) {
				compute(lognormal_ns(15000, 0.4));
				sends(ends[i ^ 1].fd, data, size);
			} else if (!size) {
				close(ends[i].fd);
				close(ends[i ^ 1].fd);
				ends[i].fd = ends[i ^ 1].fd = -1;
				open_count--;
				break;
			}
		}
	}
}

/* Each polls COUNT times. Work from another wakes two of them at once, and waits for the next poll of the others. */
static void pollers(long count)
{
	int pipes[4][2];

	make_pipes(pipes, 4);
	for (int own = 0; own < 4; own++) {
		struct pollfd news = { pipes[own][0], POLLIN, 0 };

		if (start_process(own % 2 ? "listener" : "poller", own))
			continue;
		for (long i = 0; i < count; i++) {
			struct timespec span = { 0, between(300000, 3000000) }, none = { 0, 0 };

			if (own % 2 == 0)
				nanosleep(&span, NULL);
			compute(lognormal_ns(25000, 0.5));
			if (ppoll(&news, 1, own % 2 ? &span : &none, NULL) > 0) {
				take(news.fd);
				compute(lognormal_ns(200000, 0.6));
			}
			if (is_one_in(6))
				give(pipes[(own + between(1, 3)) % 4][1]);
		}
		exit(0);
	}
}

/* COUNT pipelines as a shell starts them; 4 KiB blocks go through each. */
static void forks(long count)
{
	static char block[4096];

	for (long i = 0; i < count; i++) {
		int pipes[2][2];

		make_pipes(pipes, 2);
		if (!start_process("source", 3 * i)) {
			for (long left = between(2, 8); left > 0; left--) {
				if (is_one_in(3))
					sleep_ns(exponential_ns(500000));
				compute(lognormal_ns(40000, 0.4));
				if (write(pipes[0][1], block, sizeof(block)) != sizeof(block))
					err(2, "write to the filter");
			}
			exit(0);
		}
		close(pipes[0][1]);
		if (!start_process("filter", 3 * i + 1)) {
			while (read(pipes[0][0], block, sizeof(block)) == sizeof(block)) {
				compute(lognormal_ns(90000, 0.6));
				if (write(pipes[1][1], block, sizeof(block)) != sizeof(block))
					err(2, "write to the sink");
			}
			exit(0);
		}
		close(pipes[0][0]);
		close(pipes[1][1]);
		if (!start_process("sink", 3 * i + 2)) {
			while (read(pipes[1][0], block, sizeof(block)) == sizeof(block))
				compute(lognormal_ns(50000, 0.4));
			exit(0);
		}
		close(pipes[1][0]);
		wait_for_processes();
		compute(lognormal_ns(60000, 0.3));
		sleep_ns(lognormal_ns(2000000, 0.8));
	}
}

/* COUNT bursts of signals, each of which is answered by another, beside a task that computes for 5 of 15 ms. */
static void signals(long count)
{
	siginfo_t info;
	sigset_t set;
	pid_t catcher;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigaddset(&set, SIGRTMIN + 1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (!start_process("hog", 1)) {
		for (long left = count / 12; left > 0; left--) {
			compute(5000000);
			sleep_ns(10000000);
		}
		exit(0);
	}
	catcher = start_process("catcher", 2);
	if (!catcher) {
		while (sigwaitinfo(&set, &info) == SIGRTMIN) {
			compute(lognormal_ns(18000, 0.6));
			kill(info.si_pid, SIGRTMIN);
		}
		exit(0);
	}
	become("storm", 0);
	for (long i = 0; i < count; i++) {
		long signal_count = between(1, 6);

		for (long left = signal_count; left > 0; left--) {
			compute(lognormal_ns(10000, 0.4));
			kill(catcher, SIGRTMIN);
		}
		for (long left = signal_count; left > 0; left--)
			if (sigwaitinfo(&set, NULL) < 0)
				err(2, "sigwaitinfo");
		sleep_ns(exponential_ns(is_one_in(20) ? 6000000 : 600000));
	}
	kill(catcher, SIGRTMIN + 1);
}

/* A message is the number of times that it is still to be sent on; a negative one ends an actor. */
static struct mailbox {
	pthread_mutex_t lock;
	pthread_cond_t is_filled;
	long messages[8], first, last;
} mailboxes[6];

static int live_message_count = 3;

static void post(struct mailbox *to, long message)
{
	pthread_mutex_lock(&to->lock);
	to->messages[to->last++ % 8] = message;
	pthread_cond_signal(&to->is_filled);
	pthread_mutex_unlock(&to->lock);
}

static void act(const struct task *task)
{
	struct mailbox *own = &mailboxes[task->index];

	for (;;) {
		long message;

		pthread_mutex_lock(&own->lock);
		while (own->first == own->last)
			pthread_cond_wait(&own->is_filled, &own->lock);
		message = own->messages[own->first++ % 8];
		pthread_mutex_unlock(&own->lock);
		if (message < 0)
			return;
		compute(lognormal_ns(60000, 0.8));
		if (is_one_in(5))
			sleep_ns(exponential_ns(1200000));
		if (message)
			post(&mailboxes[(task->index + between(1, 5)) % 6], message - 1);
		else if (!__atomic_sub_fetch(&live_message_count, 1, __ATOMIC_RELAXED))
			for (int to = 0; to < 6; to++)
				post(&mailboxes[to], -1);
	}
}

/* Three messages make COUNT visits to six actors, each of which sends them on to any other. */
static void actors(long count)
{
	struct task tasks[6];

	for (int i = 0; i < 6; i++) {
		tasks[i] = (struct task){ "actor", act, 0, 0, 0 };
		pthread_mutex_init(&mailboxes[i].lock, NULL);
		pthread_cond_init(&mailboxes[i].is_filled, NULL);
	}
	for (int i = 0; i < 3; i++)
		post(&mailboxes[2 * i], count / 3);
	run_threads(tasks, LENGTH(tasks));
}

static struct {
	pthread_rwlock_t lock;
	long rows[64];
} table = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static void write_table(const struct task *task)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	for (long i = 0; i < task->count; i++) {
		wait_for_next(&at, 2000000);
		compute(lognormal_ns(60000, 0.4));
		pthread_rwlock_wrlock(&table.lock);
		for (size_t row = 0; row < LENGTH(table.rows); row++)
			table.rows[row]++;
		compute(lognormal_ns(120000, 0.6));
		pthread_rwlock_unlock(&table.lock);
	}
}

static void read_table(const struct task *task)
{
	for (long i = 0; i < task->count; i++) {
		sleep_ns(exponential_ns(800000));
		pthread_rwlock_rdlock(&table.lock);
		compute(lognormal_ns(40000, 0.7));
		if (table.rows[between(0, 63)] != table.rows[between(0, 63)])
			errx(2, "two rows of different age");
		pthread_rwlock_unlock(&table.lock);
		compute(lognormal_ns(15000, 0.4));
	}
}

/* COUNT changes of a table, one in 2 ms; each of four readers reads it twice as often. */
static void readers(long count)
{
	struct task tasks[5] = { { "writer", write_table, count, 0, 0 } };

	for (int i = 1; i < 5; i++)
		tasks[i] = (struct task){ "reader", read_table, 2 * count, 0, 0 };
	run_threads(tasks, LENGTH(tasks));
}

/* Three clients make COUNT requests by UDP. The server loses some, which are sent again after 5 ms. */
static void udp_rpc(long count)
{
	struct sockaddr_in address = { .sin_family = AF_INET }, from;
	socklen_t length = sizeof(address);
	int server = socket(AF_INET, SOCK_DGRAM, 0), open_count = 3;
	long number;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (server < 0 || bind(server, (void *)&address, length) || getsockname(server, (void *)&address, &length))
		err(2, "bind");
	for (int i = 0; i < 3; i++) {
		if (start_process("client", 1 + i))
			continue;
		struct pollfd answer = { socket(AF_INET, SOCK_DGRAM, 0), POLLIN, 0 };

		if (connect(answer.fd, (void *)&address, length))
			err(2, "connect");
		for (long request = 1; request <= count / 3; request++) {
			for (number = 0; number != request;) {
				sends(answer.fd, &request, sizeof(request));
				while (number != request && poll(&answer, 1, 5) > 0)
					receives(answer.fd, &number, sizeof(number));
			}
			compute(lognormal_ns(30000, 0.5));
			sleep_ns(exponential_ns(1500000));
		}
		number = 0;
		sends(answer.fd, &number, sizeof(number));
		exit(0);
	}
	become("server", 0);
	while (open_count) {
		length = sizeof(from);
		if (recvfrom(server, &number, sizeof(number), 0, (void *)&from, &length) != sizeof(number))
			err(2, "recvfrom");
		open_count -= !number;
		if (!number || is_one_in(60))
			continue;
		compute(lognormal_ns(70000, 0.7));
		sendto(server, &number, sizeof(number), 0, (void *)&from, length);
	}
}

/* Up to three frames between two stages; their order is their number. */
static struct channel {
	pthread_mutex_t lock;
	pthread_cond_t has_changed;
	int frame_count;
} channels[2] = { { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 },
		  { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 } };

/* Takes a frame out (-1) or puts one in (1). */
static void change_channel(struct channel *channel, int change)
{
	pthread_mutex_lock(&channel->lock);
	while (channel->frame_count == (change < 0 ? 0 : 3))
		pthread_cond_wait(&channel->has_changed, &channel->lock);
	channel->frame_count += change;
	pthread_cond_signal(&channel->has_changed);
	pthread_mutex_unlock(&channel->lock);
}

/* Whole pictures, one in 12, take the decoder longest; of the others, one in 3 is a change to the last of these. */
static void process_frames(const struct task *task)
{
	static const long typical_ns[3][3] = { { 2200000, 900000, 450000 },
					       { 700000, 1100000, 400000 },
					       { 300000, 350000, 700000 } };
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	for (long frame = 0; frame < task->count; frame++) {
		long ns = lognormal_ns(typical_ns[task->index][frame % 12 ? 1 + !!(frame % 3) : 0], 0.3);

		if (task->index == 0)
			wait_for_next(&at, 8333333);
		else
			change_channel(&channels[task->index - 1], -1);
		compute(ns < 200000 ? 200000 : ns > 3000000 ? 3000000 : ns);
		if (task->index < 2)
			change_channel(&channels[task->index], 1);
	}
}

static void play_audio(const struct task *task)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	for (long i = 0; i < task->count; i++) {
		wait_for_next(&at, 3000000);
		compute(lognormal_ns(150000, 0.3));
	}
}

/* COUNT frames of video, 120 in a second, and the sound of them. */
static void stages(long count)
{
	struct task tasks[] = { { "decoder", process_frames, count, 0, 0 },
				{ "filter", process_frames, count, 0, 0 },
				{ "display", process_frames, count, 0, 0 },
				{ "audio", play_audio, count * 8333333 / 3000000, 0, 0 } };

	run_threads(tasks, LENGTH(tasks));
}

static const struct kind kinds[] = {
	{ "buffer", bounded_buffer }, { "control", control }, { "epolls", epolls },   { "futexpool", futex_pool },
	{ "proxy", proxy },           { "pollers", pollers }, { "forks", forks },     { "signals", signals },
	{ "actors", actors },         { "readers", readers }, { "udprpc", udp_rpc },  { "stages", stages },
};

int main(int argc, char **argv)
{
	return run_kind(argc, argv, kinds, LENGTH(kinds));
}
