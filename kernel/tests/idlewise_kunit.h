/* SPDX-License-Identifier: GPL-2.0 */
/*
 * KUnit, as much of it as idlewise_governor_test.c uses, for kernels that are built without it, such
 * as Debian's. Loading the module runs its suite and prints KTAP to the kernel's log. With
 * CONFIG_KUNIT, as in the kernels that tests/rig builds, this is KUnit itself.
 */
#ifndef IDLEWISE_KUNIT_H
#define IDLEWISE_KUNIT_H

#if IS_ENABLED(CONFIG_KUNIT)
#include <kunit/test.h>
#else

#include <linux/module.h>
#include <linux/printk.h>

struct kunit {
	bool has_failed;
};

struct kunit_case {
	void (*run_case)(struct kunit *test);
	const char *name;
};

struct kunit_suite {
	const char *name;
	const struct kunit_case *test_cases;
};

#define KUNIT_CASE(function)	{ .run_case = function, .name = #function }

#define KUNIT_EXPECT_EQ_MSG(test, left, right, format, ...)				\
do {											\
	long long left_value = (left), right_value = (right);				\
											\
	if (left_value != right_value) {						\
		(test)->has_failed = true;						\
		pr_info("    # " #left " is %lld, and not %lld: " format "\n",		\
			left_value, right_value, ##__VA_ARGS__);			\
	}										\
} while (0)

static inline void kunit_run(const struct kunit_suite *suite)
{
	const struct kunit_case *one;
	int number = 0;

	pr_info("KTAP version 1\n");
	pr_info("# Subtest: %s\n", suite->name);
	for (one = suite->test_cases; one->run_case; one++) {
		struct kunit test = { false };

		one->run_case(&test);
		pr_info("%sok %d %s\n", test.has_failed ? "not " : "", ++number, one->name);
	}
	pr_info("1..%d\n", number);
}

#define kunit_test_suite(suite)			\
static int __init kunit_init(void)		\
{						\
	kunit_run(&(suite));			\
	return 0;				\
}						\
module_init(kunit_init);			\
static void __exit kunit_exit(void)		\
{						\
}						\
module_exit(kunit_exit)

#endif /* CONFIG_KUNIT */

#endif /* IDLEWISE_KUNIT_H */
