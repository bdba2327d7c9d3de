// SPDX-License-Identifier: GPL-2.0
/*
 * Loads of five more kinds, which nothing was made with: `fresh KIND COUNT`. Their tasks run where the scheduler puts
 * them, with the default timer slack. Each ends after COUNT operations, prints nothing, and draws the same random
 * numbers in every run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>

#include "tasks.h"

/* Neighbours have nothing in common. */
static void draw_for(uint64_t index)
{
	sequence = (index + 1) * 0x9e3779b97f4a7c15ULL;
	sequence = (sequence ^ sequence >> 30) * 0xbf58476d1ce4e5b9ULL;
	sequence = (sequence ^ sequence >> 27) * 0x94d049bb133111ebULL;
	sequence |= 1;
}

/*
 * A fixed number of steps, of 11 instructions each, which take 11 ns in counted time; no more than 0.3 ms at a time. An
 * emulated CPU takes far longer for a loop that crosses pages, so this one is in one place, and in one page.
 */
static __attribute__((noinline, aligned(128))) void compute(long ns)
{
	uint64_t state = 1;

	for (long left = (ns < 300000 ? ns : 300000) / 11; left > 0; left--) {
		step(&state);
		__asm__ volatile("" : "+r"(state));
	}
}

static void sleep_ns(long ns)
{
	struct timespec span = { ns / 1000000000, ns % 1000000000 };

	nanosleep(&span, NULL);
}

static long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000 + now.tv_nsec;
}

static void receives(int from, void *data, ssize_t size)
{
	if (recv(from, data, size, 0) != size)
		err(2, "recv");
}

static void makes_pair(int *ends, int type)
{
	if (socketpair(AF_UNIX, type, 0, ends))
		err(2, "socketpair");
}

static int makes_timer(long period_ns)
{
	struct itimerspec each = { { 0, period_ns }, { 0, period_ns } };
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);

	if (timer < 0 || timerfd_settime(timer, 0, &each, NULL))
		err(2, "timerfd");
	return timer;
}

static void wait_for_tick(int timer)
{
	uint64_t expiration_count;

	if (read(timer, &expiration_count, sizeof(expiration_count)) != sizeof(expiration_count))
		err(2, "read from a timerfd");
}

/* Records have numbers from 1 on; those up to `durable` are on the disk. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t is_to_flush, is_durable;
	long appended, durable;
	int session_count;
} wal = { .lock = PTHREAD_MUTEX_INITIALIZER, .is_durable = PTHREAD_COND_INITIALIZER, .session_count = 6 };

/* The flusher has to know of the first record, from which its delay runs, and of the one that makes a group full. */
static void commit(const struct task *task)
{
	for (long left = task->count; left > 0; left--) {
		long own, waiting;

		sleep_ns(exponential_ns(2200000));
		compute(lognormal_ns(120000, 0.7));
		pthread_mutex_lock(&wal.lock);
		own = ++wal.appended;
		waiting = own - wal.durable;
		if (waiting == 1 || waiting == 4)
			pthread_cond_signal(&wal.is_to_flush);
		while (wal.durable < own)
			pthread_cond_wait(&wal.is_durable, &wal.lock);
		pthread_mutex_unlock(&wal.lock);
		compute(lognormal_ns(25000, 0.4));
	}
	pthread_mutex_lock(&wal.lock);
	wal.session_count--;
	pthread_cond_signal(&wal.is_to_flush);
	pthread_mutex_unlock(&wal.lock);
}

static void flush(const struct task *task)
{
	(void)task;
	pthread_mutex_lock(&wal.lock);
	for (;;) {
		struct timespec deadline;
		long group, until_ns;

		while (wal.appended == wal.durable && wal.session_count)
			pthread_cond_wait(&wal.is_to_flush, &wal.lock);
		if (wal.appended == wal.durable)
			break;
		until_ns = now_ns() + 1500000;
		deadline = (struct timespec){ until_ns / 1000000000, until_ns % 1000000000 };
		while (wal.appended - wal.durable < 4)
			if (pthread_cond_timedwait(&wal.is_to_flush, &wal.lock, &deadline))
				break;
		group = wal.appended;
		pthread_mutex_unlock(&wal.lock);
		compute(20000 + 8000 * (group - wal.durable));
		sleep_ns(lognormal_ns(350000, 0.6));
		pthread_mutex_lock(&wal.lock);
		wal.durable = group;
		pthread_cond_broadcast(&wal.is_durable);
	}
	pthread_mutex_unlock(&wal.lock);
}

/* COUNT commits of six sessions. A group of them is flushed 1.5 ms after its first, or once there are four. */
static void group_commit(long count)
{
	struct task tasks[7] = { { "flusher", flush, 0, 0, 0 } };
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&wal.is_to_flush, &attributes);
	for (int i = 1; i < 7; i++)
		tasks[i] = (struct task){ "session", commit, (count + i - 1) / 6, 0, 0 };
	run_threads(tasks, LENGTH(tasks));
}

struct job {
	uint64_t number;
	int depth;
};

/* A worker adds to and takes from the end of its own queue, and steals from the front of others. */
static struct {
	pthread_mutex_t lock;
	struct queue {
		struct job jobs[32];
		uint32_t first, last;
	} queues[4];
	pthread_cond_t is_called[4];
	bool is_asleep[4], is_over;
	int sleepers[4], sleeper_count, searcher_count;
	long root_count, taken_root_count, live_count;
} executor = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Wakes who fell asleep last, unless somebody is looking for a job anyway. With the lock held. */
static void call_worker(void)
{
	if (!executor.sleeper_count || executor.searcher_count)
		return;
	int worker = executor.sleepers[--executor.sleeper_count];

	executor.is_asleep[worker] = false;
	executor.searcher_count++;
	pthread_cond_signal(&executor.is_called[worker]);
}

/* With the lock held. */
static bool find_job(int own, struct job *job)
{
	struct queue *queue = &executor.queues[own];

	if (queue->first != queue->last) {
		*job = queue->jobs[--queue->last % LENGTH(queue->jobs)];
		return true;
	}
	if (executor.taken_root_count < executor.root_count) {
		draw_for(++executor.taken_root_count);
		*job = (struct job){ executor.taken_root_count << 24, between(0, 4) };
		return true;
	}
	for (int i = 1; i < 4; i++) {
		queue = &executor.queues[(own + i) % 4];
		if (queue->first != queue->last) {
			*job = queue->jobs[queue->first++ % LENGTH(queue->jobs)];
			return true;
		}
	}
	return false;
}

/* Returns whether there is a job; whoever stops to look for one calls the next who looks. */
static bool get_job(int own, struct job *job)
{
	bool is_searcher = false, is_found;

	pthread_mutex_lock(&executor.lock);
	while (!(is_found = find_job(own, job)) && !(executor.is_over && !executor.live_count)) {
		executor.searcher_count -= is_searcher;
		executor.is_asleep[own] = true;
		executor.sleepers[executor.sleeper_count++] = own;
		while (executor.is_asleep[own])
			pthread_cond_wait(&executor.is_called[own], &executor.lock);
		is_searcher = true;
	}
	executor.searcher_count -= is_searcher;
	if (is_searcher)
		call_worker();
	pthread_mutex_unlock(&executor.lock);
	return is_found;
}

static void execute(const struct task *task)
{
	struct queue *own = &executor.queues[task->index];
	struct job job;

	while (get_job(task->index, &job)) {
		draw_for(job.number);
		for (long left = job.depth ? between(0, 3) : 0; left > 0; left--) {
			compute(lognormal_ns(25000, 0.5));
			pthread_mutex_lock(&executor.lock);
			own->jobs[own->last++ % LENGTH(own->jobs)] = (struct job){ job.number * 4 + left, job.depth - 1 };
			executor.live_count++;
			call_worker();
			pthread_mutex_unlock(&executor.lock);
		}
		compute(lognormal_ns(70000, 0.8));
		pthread_mutex_lock(&executor.lock);
		if (!--executor.live_count && executor.is_over)
			call_worker();
		pthread_mutex_unlock(&executor.lock);
	}
}

static void react(const struct task *task)
{
	for (long left = task->count; left > 0; left--) {
		sleep_ns(is_one_in(25) ? 8000000 : exponential_ns(1500000));
		compute(lognormal_ns(12000, 0.4));
		pthread_mutex_lock(&executor.lock);
		executor.root_count++;
		executor.live_count++;
		executor.is_over = left == 1;
		call_worker();
		pthread_mutex_unlock(&executor.lock);
	}
}

/* COUNT trees of jobs; each job makes up to three smaller ones, which any of four workers may steal. */
static void stealing(long count)
{
	struct task tasks[5] = { [4] = { "reactor", react, count, 0, 0 } };

	for (int i = 0; i < 4; i++) {
		tasks[i] = (struct task){ "executor", execute, 0, 0, 0 };
		pthread_cond_init(&executor.is_called[i], NULL);
	}
	run_threads(tasks, LENGTH(tasks));
}

/* The pipes of the graph, by what writes to them. */
enum { CAMERA, SCALER, MICROPHONE, EFFECTS, MIXER, METER, STAGE_COUNT };

static int graph[STAGE_COUNT][2];

/* Without the rest, the end of what feeds a stage is the end of the stage. */
static void keep_pipes(int input, int other_input, int output)
{
	for (int i = 0; i < STAGE_COUNT; i++) {
		if (i != input && i != other_input)
			close(graph[i][0]);
		if (i != output)
			close(graph[i][1]);
	}
}

static bool reads_item(int stage, char *item)
{
	ssize_t size = read(graph[stage][0], item, 64);

	if (size < 0 && errno != EAGAIN)
		err(2, "read from a stage");
	return size > 0;
}

static void write_item(int stage, const char *item)
{
	if (write(graph[stage][1], item, 64) != 64)
		err(2, "write to a stage");
}

/* Something every so often, for the time given. */
static void make_items(int stage, long period_ns, long whole_ns, long typical_ns)
{
	char item[64] = "";
	int timer;

	keep_pipes(-1, -1, stage);
	timer = makes_timer(period_ns);
	for (long left = whole_ns / period_ns; left > 0; left--) {
		wait_for_tick(timer);
		compute(lognormal_ns(typical_ns, 0.3));
		write_item(stage, item);
	}
	exit(0);
}

static void filter_items(int input, int output, long typical_ns, double sigma)
{
	char item[64];

	keep_pipes(input, -1, output);
	while (reads_item(input, item)) {
		compute(lognormal_ns(typical_ns, sigma));
		write_item(output, item);
	}
	exit(0);
}

/* COUNT periods of 4 ms of a mixer, which takes what two chains of another rate have made until then. */
static void media(long count)
{
	char item[64] = "";
	int timer;

	for (int i = 0; i < STAGE_COUNT; i++)
		if (pipe(graph[i]))
			err(2, "pipe");
	if (!start_process("camera", 0))
		make_items(CAMERA, 8333333, 4000000 * count, 110000);
	if (!start_process("scaler", 1))
		filter_items(CAMERA, SCALER, 230000, 0.3);
	if (!start_process("microphone", 2))
		make_items(MICROPHONE, 2176870, 4000000 * count, 25000);
	if (!start_process("effects", 3))
		filter_items(MICROPHONE, EFFECTS, 85000, 0.5);
	if (!start_process("mixer", 4)) {
		keep_pipes(SCALER, EFFECTS, MIXER);
		if (fcntl(graph[SCALER][0], F_SETFL, O_NONBLOCK) || fcntl(graph[EFFECTS][0], F_SETFL, O_NONBLOCK))
			err(2, "fcntl");
		timer = makes_timer(4000000);
		for (long left = count; left > 0; left--) {
			wait_for_tick(timer);
			compute(30000);
			while (reads_item(EFFECTS, item))
				compute(lognormal_ns(25000, 0.3));
			while (reads_item(SCALER, item))
				compute(lognormal_ns(90000, 0.4));
			write_item(MIXER, item);
		}
		/* Neither chain is to write to a pipe that nobody reads. */
		fcntl(graph[SCALER][0], F_SETFL, 0);
		fcntl(graph[EFFECTS][0], F_SETFL, 0);
		while (reads_item(EFFECTS, item) || reads_item(SCALER, item))
			;
		exit(0);
	}
	if (!start_process("sink", 5)) {
		keep_pipes(MIXER, -1, METER);
		for (long block = 0; reads_item(MIXER, item); block++) {
			compute(lognormal_ns(60000, 0.4));
			if (block % 4 == 3)
				write_item(METER, item);
		}
		exit(0);
	}
	if (!start_process("meter", 6)) {
		struct pollfd level = { graph[METER][0], POLLIN, 0 };

		/* It falls by itself while there is nothing new. */
		keep_pipes(METER, -1, -1);
		while (!poll(&level, 1, 7) || reads_item(METER, item))
			compute(lognormal_ns(40000, 0.3));
		exit(0);
	}
	keep_pipes(-1, -1, -1);
}

/* Who leaves hands the lock to who has waited longest, so that nobody gets it twice in a row while others wait. */
static struct {
	pthread_mutex_t guard;
	bool is_held;
	sem_t *waiters[16];
	uint32_t first, last;
	int handler_count;
} arena = { .guard = PTHREAD_MUTEX_INITIALIZER, .handler_count = 7 };

static bool enters_at_once(void)
{
	bool was_held;

	pthread_mutex_lock(&arena.guard);
	was_held = arena.is_held;
	arena.is_held = true;
	pthread_mutex_unlock(&arena.guard);
	return !was_held;
}

static void enter(sem_t *own)
{
	bool was_held;

	pthread_mutex_lock(&arena.guard);
	was_held = arena.is_held;
	arena.is_held = true;
	if (was_held)
		arena.waiters[arena.last++ % LENGTH(arena.waiters)] = own;
	pthread_mutex_unlock(&arena.guard);
	while (was_held && sem_wait(own))
		;
}

static void leave(void)
{
	pthread_mutex_lock(&arena.guard);
	if (arena.first == arena.last)
		arena.is_held = false;
	else
		sem_post(arena.waiters[arena.first++ % LENGTH(arena.waiters)]);
	pthread_mutex_unlock(&arena.guard);
}

static void handle(const struct task *task)
{
	sem_t own;

	sem_init(&own, 0, 0);
	for (long left = task->count; left > 0; left--) {
		sleep_ns(lognormal_ns(3000000, 0.8));
		for (long visits = between(1, 4); visits > 0; visits--) {
			compute(lognormal_ns(25000, 0.5));
			enter(&own);
			compute(lognormal_ns(55000, 0.5));
			if (is_one_in(50))
				sleep_ns(exponential_ns(1200000));
			leave();
		}
	}
	__atomic_sub_fetch(&arena.handler_count, 1, __ATOMIC_RELAXED);
}

/* It gives way to the handlers for up to six times 0.4 ms; what it does in the end is the same. */
static void sweep(const struct task *task)
{
	sem_t own;

	(void)task;
	sem_init(&own, 0, 0);
	while (__atomic_load_n(&arena.handler_count, __ATOMIC_RELAXED)) {
		bool has_entered = enters_at_once();

		for (int tries = 0; tries < 6 && !has_entered; tries++) {
			sleep_ns(400000);
			has_entered = enters_at_once();
		}
		if (!has_entered)
			enter(&own);
		compute(lognormal_ns(160000, 0.4));
		leave();
		sleep_ns(between(9000000, 17000000));
	}
}

/* COUNT times, one of seven handlers thinks, and then visits what only one may be in, up to four times in a row. */
static void convoy(long count)
{
	struct task tasks[8] = { { "sweeper", sweep, 0, 0, 0 } };

	for (int i = 1; i < 8; i++)
		tasks[i] = (struct task){ "handler", handle, (count + i - 1) / 7, 0, 0 };
	run_threads(tasks, LENGTH(tasks));
}

/* Each tick of the interval timer is worth `share` messages, up to 12, of which at most 12 may be unanswered. */
static void send_by_rate(int end, long count, long tick_us, long share)
{
	struct itimerval each = { { 0, tick_us }, { 0, tick_us } };
	struct pollfd news[2] = { { -1, POLLIN, 0 }, { end, POLLIN, 0 } };
	struct signalfd_siginfo info;
	long message = 0, made = 0, token_count = 12, unanswered_count = 0, credit;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	news[0].fd = signalfd(-1, &set, 0);
	if (news[0].fd < 0 || sigprocmask(SIG_BLOCK, &set, NULL) || setitimer(ITIMER_REAL, &each, NULL))
		err(2, "signalfd");
	while (message < count) {
		while (message < made && message < count && token_count && unanswered_count < 12) {
			compute(lognormal_ns(14000, 0.4));
			sends(end, &message, sizeof(message));
			message++;
			token_count--;
			unanswered_count++;
		}
		if (message == count || poll(news, 2, -1) < 0)
			break;
		if (news[1].revents) {
			receives(end, &credit, sizeof(credit));
			unanswered_count -= credit;
		}
		if (news[0].revents && read(news[0].fd, &info, sizeof(info)) == sizeof(info)) {
			token_count = token_count + share < 12 ? token_count + share : 12;
			if (is_one_in(4)) {
				long burst = between(1, 4 * share);

				compute(8000 * burst);
				made += burst;
			}
		}
	}
	message = -1;
	sends(end, &message, sizeof(message));
	exit(0);
}

/* COUNT messages of two senders by Unix datagrams; the receiver gives credit for four at a time, and stalls at times. */
static void bucket(long count)
{
	struct pollfd ends[2];
	long message, seen_counts[2] = { 0, 0 };
	int open_count = 2;

	for (int i = 0; i < 2; i++) {
		int pair[2];

		makes_pair(pair, SOCK_DGRAM);
		if (!start_process(i ? "bulk" : "paced", 1 + i))
			send_by_rate(pair[1], i ? count * 3 / 5 : count - count * 3 / 5, i ? 5000 : 1700, i ? 7 : 2);
		ends[i] = (struct pollfd){ pair[0], POLLIN, 0 };
	}
	become("receiver", 0);
	while (open_count && poll(ends, 2, -1) > 0) {
		for (int i = 0; i < 2; i++) {
			if (!ends[i].revents)
				continue;
			receives(ends[i].fd, &message, sizeof(message));
			if (message < 0) {
				ends[i].fd = -1;
				open_count--;
				continue;
			}
			draw_for(2 * message + i);
			compute(lognormal_ns(110000, 0.6));
			if (is_one_in(60))
				sleep_ns(exponential_ns(3000000));
			if (++seen_counts[i] % 4 == 0)
				send(ends[i].fd, &(long){ 4 }, sizeof(long), 0);
		}
	}
}

static const struct kind kinds[] = {
	{ "groupcommit", group_commit }, { "stealing", stealing }, { "media", media },
	{ "convoy", convoy },     { "bucket", bucket },
};

int main(int argc, char **argv)
{
	return run_kind(argc, argv, kinds, LENGTH(kinds));
}
