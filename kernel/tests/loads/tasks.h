/* SPDX-License-Identifier: GPL-2.0 */
/* What the loads share whose tasks run where the scheduler puts them: random numbers, processes, threads. */
#include <err.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* Each process and each thread draws from its own sequence. */
static __thread uint64_t sequence = 1;

/* Each program's own: what is drawn from here on depends on the index alone. */
static void draw_for(uint64_t index);

/* Tasks of one kind have different indices. */
static void become(const char *name, uint64_t index)
{
	prctl(PR_SET_NAME, name);
	draw_for(index);
}

static void step(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
}

/* At least 0, below 1. */
static double uniform(void)
{
	step(&sequence);
	return (sequence * 0x2545f4914f6cdd1dULL >> 11) * 0x1p-53;
}

static long between(long least, long most)
{
	return least + (long)(uniform() * (most - least + 1));
}

static bool is_one_in(long count)
{
	return between(1, count) == 1;
}

static long exponential_ns(double mean_ns)
{
	return -mean_ns * log(1.0 - uniform());
}

static long lognormal_ns(double median_ns, double sigma)
{
	double radius = sqrt(-2.0 * log(1.0 - uniform()));

	return median_ns * exp(sigma * radius * cos(2.0 * M_PI * uniform()));
}

/* Returns what fork() returns. */
static pid_t start_process(const char *name, uint64_t index)
{
	pid_t pid = fork();

	if (pid < 0)
		err(2, "fork");
	if (!pid)
		become(name, index);
	return pid;
}

static void wait_for_processes(void)
{
	int status;

	while (wait(&status) > 0)
		if (status)
			errx(2, "a process ended with status %#x", status);
}

struct task {
	const char *name;
	void (*run)(const struct task *task);
	long count;
	int index;
	pthread_t thread;
};

static void *run_task(void *of_thread)
{
	const struct task *task = of_thread;

	become(task->name, task->index);
	task->run(task);
	return NULL;
}

/* Runs each task in its own thread, and waits for all of them. */
static void run_threads(struct task *tasks, int task_count)
{
	for (int i = 0; i < task_count; i++) {
		tasks[i].index = i;
		if (pthread_create(&tasks[i].thread, NULL, run_task, &tasks[i]))
			errx(2, "pthread_create");
	}
	for (int i = 0; i < task_count; i++)
		pthread_join(tasks[i].thread, NULL);
}

static void sends(int to, const void *data, ssize_t size)
{
	if (send(to, data, size, 0) != size)
		err(2, "send");
}

/* What a program can do, and how often. */
struct kind {
	const char *name;
	void (*run)(long count);
};

/* PROGRAM KIND COUNT; returns what main() returns. */
static int run_kind(int argc, char **argv, const struct kind *kinds, size_t kind_count)
{
	long count = argc == 3 ? atol(argv[2]) : 0;

	for (size_t i = 0; i < kind_count; i++) {
		if (count <= 0 || strcmp(argv[1], kinds[i].name))
			continue;
		kinds[i].run(count);
		wait_for_processes();
		return 0;
	}
	errx(2, "usage: %s KIND COUNT", argv[0]);
}
