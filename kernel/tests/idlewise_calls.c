// SPDX-License-Identifier: GPL-2.0
/*
 * idlewise_calls: counts the calls of kernel functions, for tests.
 *
 * Run `insmod idlewise_calls.ko functions=NAME,NAME`. The file parameters/counts in
 * /sys/module/idlewise_calls then has a line for each function: its name and its calls so far, or
 * no count if it cannot be probed. perf's kprobe events refuse lib/, which these tests need.
 */

#include <linux/atomic.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

#define FUNCTION_COUNT_MAX	8

struct function {
	struct kprobe probe;
	atomic64_t call_count;
	bool is_probed;
};

static char *functions[FUNCTION_COUNT_MAX];
static int function_count;
module_param_array(functions, charp, &function_count, 0);
MODULE_PARM_DESC(functions, "The functions to count");

static struct function probed[FUNCTION_COUNT_MAX];

static int show_counts(char *buffer, const struct kernel_param *param)
{
	int length = 0, i;

	for (i = 0; i < function_count; i++) {
		if (!probed[i].is_probed)
			length += scnprintf(buffer + length, PAGE_SIZE - length, "%s -\n", functions[i]);
		else
			length += scnprintf(buffer + length, PAGE_SIZE - length, "%s %lld\n", functions[i],
					    atomic64_read(&probed[i].call_count));
	}
	return length;
}

static const struct kernel_param_ops counts_ops = { .get = show_counts };
module_param_cb(counts, &counts_ops, NULL, 0444);
MODULE_PARM_DESC(counts, "How often each was called");

static int count_call(struct kprobe *probe, struct pt_regs *registers)
{
	atomic64_inc(&container_of(probe, struct function, probe)->call_count);
	return 0;
}
NOKPROBE_SYMBOL(count_call);

static int __init calls_init(void)
{
	int i;

	for (i = 0; i < function_count; i++) {
		probed[i].probe.symbol_name = functions[i];
		probed[i].probe.pre_handler = count_call;
		probed[i].is_probed = !register_kprobe(&probed[i].probe);
	}
	return 0;
}

static void __exit calls_exit(void)
{
	int i;

	for (i = 0; i < function_count; i++) {
		if (probed[i].is_probed)
			unregister_kprobe(&probed[i].probe);
	}
}

module_init(calls_init);
module_exit(calls_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Counts the calls of kernel functions, for idlewise's tests");
