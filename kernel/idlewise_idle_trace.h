/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM idlewise

#if !defined(IDLEWISE_IDLE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define IDLEWISE_IDLE_TRACE_H

#include <linux/tracepoint.h>

/* A CPU left an idle state: which state, why (enum idlewise_wake), and after how long. */
TRACE_EVENT(idlewise_wake,
	TP_PROTO(unsigned int state, unsigned int reason, u64 stay_ns),
	TP_ARGS(state, reason, stay_ns),
	TP_STRUCT__entry(
		__field(u32, state)
		__field(u32, reason)
		__field(u64, stay_ns)
	),
	TP_fast_assign(
		__entry->state = state;
		__entry->reason = reason;
		__entry->stay_ns = stay_ns;
	),
	TP_printk("state=%u reason=%s stay_ns=%llu", __entry->state,
		__print_symbolic(__entry->reason,
			{ 0, "store" }, { 1, "ipi" }, { 2, "promotion" },
			{ 3, "deadline" }, { 4, "interrupt" }),
		__entry->stay_ns)
);

#endif /* IDLEWISE_IDLE_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE idlewise_idle_trace
#include <trace/define_trace.h>
