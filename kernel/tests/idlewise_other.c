// SPDX-License-Identifier: GPL-2.0
/*
 * A cpuidle driver that is in the way, as the distribution's is on bare metal; for tests. With governor=NAME
 * it asks for a governor of its own, as cpuidle-haltpoll does. With warn=1 it is a warning instead, so that
 * these can be seen to notice one.
 */

#include <linux/cpuidle.h>
#include <linux/module.h>

static bool warn;
module_param(warn, bool, 0);
MODULE_PARM_DESC(warn, "Warn, and be no driver");
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

static int __init other_init(void)
{
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
