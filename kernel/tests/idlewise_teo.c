// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel's own teo as a module, for kernels that are configured without it. teo.c is the kernel's
 * file, unmodified; tests/run puts it beside this one if scripts/kernel-sources got it. Choose
 * another governor before removing it.
 */
#include <linux/cpuidle.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/tick.h>

#include "governor_symbols.h"

/* idlewise_teo_patched.c has other values. */
#ifndef TEO_NAME
#define TEO_NAME "teo"
#define TEO_FILE "teo.c"
#endif

static int register_as(struct cpuidle_governor *governor, const char *name)
{
	strscpy(governor->name, name, sizeof(governor->name));
	return governor_register(governor);
}

#define cpuidle_register_governor(governor) register_as(governor, TEO_NAME)
#undef postcore_initcall
#define postcore_initcall(function) module_init(function)

#include TEO_FILE

static void __exit teo_exit(void)
{
	governor_unregister(&teo_governor);
}
module_exit(teo_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("the kernel's own teo");
