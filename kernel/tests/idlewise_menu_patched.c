// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's menu with a patch, beside the kernel's own. tests/images.sh makes the file. Choose
 * another governor before removing it.
 */
#include <linux/cpuidle.h>
#include <linux/module.h>
#include <linux/sched/stat.h>
#include <linux/string.h>
#include <linux/tick.h>

#include "governor_symbols.h"

IDLEWISE_DEFINE_CALL(nr_iowait_cpu);
#define nr_iowait_cpu(cpu) IDLEWISE_CALL(nr_iowait_cpu)(cpu)

static int register_patched(struct cpuidle_governor *governor)
{
	if (!IDLEWISE_FIND(nr_iowait_cpu))
		return -EOPNOTSUPP;
	strscpy(governor->name, "menu-patched", sizeof(governor->name));
	return governor_register(governor);
}

#define cpuidle_register_governor(governor) register_patched(governor)
#undef postcore_initcall
#define postcore_initcall(function) module_init(function)

#include "patched-menu.c"

static void __exit menu_exit(void)
{
	governor_unregister(&menu_governor);
}
module_exit(menu_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("the kernel's own menu, patched");
