/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What ended each stay in a state: the tracepoint idlewise_wake, and counts in debugfs (wakes)
 * while its switch (accounting) is on. If neither is in use, entering a state passes two branches
 * that are patched out, and runs nothing else from here.
 *
 * Each CPU writes only its own counters. A wake-up by a store is recognised by the flag that was
 * stored. Senders count their stores on their own side. So a wake-up that found another one on its
 * way is not counted per CPU: it is in the total of those that were sent and did not end a stay.
 */
#ifndef IDLEWISE_WAKES_H
#define IDLEWISE_WAKES_H

#include <linux/debugfs.h>
#include <linux/jump_label.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/sched/clock.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/tracepoint.h>

#include <asm/apic.h>
#include <asm/irq_vectors.h>

#include "compat.h"
#include "idlewise_states.h"

#define CREATE_TRACE_POINTS
#include "idlewise_idle_trace.h"

enum idlewise_wake {
	IDLEWISE_WAKE_STORE,
	IDLEWISE_WAKE_IPI,
	IDLEWISE_WAKE_PROMOTION,
	IDLEWISE_WAKE_DEADLINE,
	IDLEWISE_WAKE_INTERRUPT,
	IDLEWISE_WAKE_COUNT,
};

static const char * const wake_names[IDLEWISE_WAKE_COUNT] = {
	"store", "ipi", "promotion", "deadline", "interrupt",
};

/* The tracepoint's header contains the same names. */
static_assert(IDLEWISE_WAKE_COUNT == 5);

struct idlewise_wakes {
	u64 counts[IDLEWISE_STATE_COUNT_MAX][IDLEWISE_WAKE_COUNT];
	u64 stay_ns[IDLEWISE_STATE_COUNT_MAX];
	/* Wake-ups that this CPU sent to others as a store. */
	u64 sent_store_count;
};

/* The beginning of a stay. */
struct idlewise_stay {
	u64 start_ns;
	unsigned int ipi_count;
};

static DEFINE_PER_CPU(struct idlewise_wakes, idlewise_wakes);
static DEFINE_STATIC_KEY_FALSE(is_accounting);
static DEFINE_MUTEX(accounting_lock);
static struct tracepoint *sent_store_tracepoint;

static __always_inline bool stays_are_observed(void)
{
	return static_branch_unlikely(&is_accounting) || trace_idlewise_wake_enabled();
}

static struct idlewise_stay stay_begins(void)
{
	return (struct idlewise_stay){ local_clock(), idlewise_ipi_count() };
}

/* Whether a reschedule or call IPI is pending; their vectors are adjacent. */
static bool ipi_is_pending(void)
{
	const u32 vectors = BIT(RESCHEDULE_VECTOR & 31) | BIT(CALL_FUNCTION_VECTOR & 31) |
			    BIT(CALL_FUNCTION_SINGLE_VECTOR & 31);

	BUILD_BUG_ON(RESCHEDULE_VECTOR >> 5 != 7 || CALL_FUNCTION_VECTOR >> 5 != 7 ||
		     CALL_FUNCTION_SINGLE_VECTOR >> 5 != 7);
	return apic->read(APIC_IRR + 0x70) & vectors;
}

/* promotion_ns: after how long it would be promoted, or 0; limited: UMWAIT's limit ended it. */
static void stay_ended(const struct idlewise_state *state, int index, struct idlewise_stay stay,
		       u64 promotion_ns, bool limited)
{
	struct idlewise_wakes *wakes = this_cpu_ptr(&idlewise_wakes);
	u64 stay_ns = local_clock() - stay.start_ns;
	enum idlewise_wake wake;

	if (idlewise_ipi_count() != stay.ipi_count || ipi_is_pending())
		wake = IDLEWISE_WAKE_IPI;
	else if (state->method != IDLEWISE_HLT && need_resched())
		/* No handler that could have set the flag has run. */
		wake = IDLEWISE_WAKE_STORE;
	else if (promotion_ns && stay_ns >= promotion_ns)
		/* Decided by the clock: with interrupts masked, the handler has not run yet. */
		wake = IDLEWISE_WAKE_PROMOTION;
	else
		wake = limited ? IDLEWISE_WAKE_DEADLINE : IDLEWISE_WAKE_INTERRUPT;
	if (static_branch_unlikely(&is_accounting)) {
		wakes->counts[index][wake]++;
		wakes->stay_ns[index] += stay_ns;
	}
	trace_idlewise_wake(index, wake, stay_ns);
}

/* Runs on the sender's CPU: the scheduler reports each wake-up that it sent as a store. */
static void count_sent_store(void *data, int cpu)
{
	this_cpu_inc(idlewise_wakes.sent_store_count);
}

static void find_sent_store(struct tracepoint *tracepoint, void *data)
{
	if (!strcmp(tracepoint->name, "sched_wake_idle_without_ipi"))
		sent_store_tracepoint = tracepoint;
}

static void start_accounting(void)
{
	for_each_kernel_tracepoint(find_sent_store, NULL);
	if (!sent_store_tracepoint ||
	    tracepoint_probe_register(sent_store_tracepoint, count_sent_store, NULL)) {
		sent_store_tracepoint = NULL;
		pr_warn("this kernel does not tell of wakes without an IPI, so sent_stores counts none\n");
	}
	static_branch_enable(&is_accounting);
}

static void stop_accounting(void)
{
	static_branch_disable(&is_accounting);
	if (sent_store_tracepoint)
		tracepoint_probe_unregister(sent_store_tracepoint, count_sent_store, NULL);
	sent_store_tracepoint = NULL;
	tracepoint_synchronize_unregister();
}

static int accounting_set(void *data, u64 value)
{
	bool is_on;

	if (value > 1)
		return -EINVAL;
	mutex_lock(&accounting_lock);
	is_on = static_key_enabled(&is_accounting);
	if (value && !is_on)
		start_accounting();
	else if (!value && is_on)
		stop_accounting();
	mutex_unlock(&accounting_lock);
	return 0;
}

static int accounting_get(void *data, u64 *value)
{
	*value = static_key_enabled(&is_accounting);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(accounting_fops, accounting_get, accounting_set, "%llu\n");

static int wakes_show(struct seq_file *file, void *data)
{
	const struct idlewise_table *table = file->private;
	int cpu, index, wake;

	if (!static_key_enabled(&is_accounting))
		seq_puts(file, "# nothing is being counted; to begin, write 1 to the file accounting beside this one\n");
	seq_printf(file, "%-4s %-*s %15s", "cpu", IDLEWISE_NAME_LENGTH_MAX, "state", "stay_ns");
	for (wake = 0; wake < IDLEWISE_WAKE_COUNT; wake++)
		seq_printf(file, " %12s", wake_names[wake]);
	seq_puts(file, "\n");
	for_each_online_cpu(cpu) {
		const struct idlewise_wakes *of = per_cpu_ptr(&idlewise_wakes, cpu);

		for (index = 0; index < table->state_count; index++) {
			/* POLL is the kernel's own, and is only counted in sysfs. */
			if (table->states[index].method == IDLEWISE_POLL)
				continue;
			seq_printf(file, "%-4d %-*s %15llu", cpu, IDLEWISE_NAME_LENGTH_MAX,
				   table->states[index].name, of->stay_ns[index]);
			for (wake = 0; wake < IDLEWISE_WAKE_COUNT; wake++)
				seq_printf(file, " %12llu", of->counts[index][wake]);
			seq_puts(file, "\n");
		}
		seq_printf(file, "%-4d sent_stores %llu\n", cpu, of->sent_store_count);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(wakes);

static struct dentry *debugfs_folder;

static void show_wakes(struct idlewise_table *table)
{
	debugfs_folder = debugfs_create_dir("idlewise", NULL);
	if (IS_ERR(debugfs_folder)) {
		pr_warn("no accounting to read: this kernel has no debugfs, or was booted with debugfs=off\n");
		return;
	}
	debugfs_create_file("wakes", 0400, debugfs_folder, table, &wakes_fops);
	debugfs_create_file("accounting", 0600, debugfs_folder, NULL, &accounting_fops);
}

static void hide_wakes(void)
{
	debugfs_remove_recursive(debugfs_folder);
	accounting_set(NULL, 0);
}

#endif /* IDLEWISE_WAKES_H */
