// SPDX-License-Identifier: GPL-2.0
/*
 * A cpuidle driver that is in the way, like the distribution's on bare metal; for tests. With
 * governor=NAME it asks for its own governor, as cpuidle-haltpoll does. With warn=1 it only warns,
 * and with race=1 it only races, so that tests can check that they notice such faults.
 */

#include <linux/completion.h>
#include <linux/cpuidle.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/task.h>

#define RACE_COUNT	500000

static bool warn;
module_param(warn, bool, 0);
MODULE_PARM_DESC(warn, "Warn, and be no driver");
static bool race;
module_param(race, bool, 0);
MODULE_PARM_DESC(race, "Let two CPUs count in one plain variable, and be no driver");
static char *governor;
module_param(governor, charp, 0);
MODULE_PARM_DESC(governor, "The governor to use as long as this driver is there");

static int enter(struct cpuidle_device *device, struct cpuidle_driver *driver, int index)
{
	return index;
}

static struct cpuidle_driver other = {
	.name = "other",
	.states = { { .name = "C1", .desc = "NOTHING", .enter = enter } },
	.state_count = 1,
};

static unsigned long raced_count;

static noinline void count_plainly(void)
{
	raced_count++;
}

static int count_up(void *data)
{
	int i;

	for (i = 0; i < RACE_COUNT; i++) {
		count_plainly();
		cond_resched();
	}
	complete(data);
	return 0;
}

/* Races two threads on two CPUs. Both have ended when this returns. */
static void race_with_ourselves(void)
{
	struct task_struct *tasks[2];
	struct completion done[2];
	unsigned int cpu;

	for (cpu = 0; cpu < ARRAY_SIZE(tasks); cpu++) {
		init_completion(&done[cpu]);
		tasks[cpu] = kthread_create_on_cpu(count_up, &done[cpu], cpu, "idlewise_race/%u");
		if (IS_ERR(tasks[cpu]))
			continue;
		get_task_struct(tasks[cpu]);
		wake_up_process(tasks[cpu]);
	}
	for (cpu = 0; cpu < ARRAY_SIZE(tasks); cpu++) {
		if (IS_ERR(tasks[cpu]))
			continue;
		wait_for_completion(&done[cpu]);
		kthread_stop(tasks[cpu]);
		put_task_struct(tasks[cpu]);
	}
}

static int __init other_init(void)
{
	if (race) {
		race_with_ourselves();
		return -EINVAL;
	}
	if (warn) {
		WARN(1, "on purpose\n");
		return -EINVAL;
	}
	other.governor = governor;
	return cpuidle_register_driver(&other);
}

static void __exit other_exit(void)
{
	cpuidle_unregister_driver(&other);
}

module_init(other_init);
module_exit(other_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A cpuidle driver that is in the way, for tests");
