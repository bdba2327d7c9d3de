/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Puts the questions of a replay to a kernel's governor, as decisions.rs puts them to ours: compiled
 * together with the governor, so that nothing stands between the two but the kernel's own pointers.
 */
#include <idlewise/kernel.h>

/* `Note` of decisions.rs. */
struct note {
	s64 sleep_length_ns, next_event_ns;
	u64 select_at_ns, reflect_at_ns, residency_ns, poll_limit_ns;
	bool tick_stopped, poll_time_limit, got_tick;
	u8 entered;
};

/* A stream's questions to the governor as it is after its enable; the number of other answers. */
__attribute__((visibility("default"))) u64 idlewise_ask(const struct note *notes, size_t count, u32 disabled)
{
	const struct cpuidle_governor *governor = idlewise_registered;
	struct idlewise_context context = { 0 };
	u64 different = 0;

	idlewise_cpu.last_residency_ns = idlewise_cpu.poll_limit_ns = 0;
	idlewise_cpu.poll_time_limit = false;
	idlewise_cpu.last_state_idx = 0;
	for (int i = 0; i < CPUIDLE_STATE_MAX; i++)
		idlewise_cpu.states_usage[i].disable = disabled >> i & 1;
	if (governor->enable)
		governor->enable(&idlewise_driver, &idlewise_cpu);
	idlewise_now.context = &context;
	idlewise_now.latency_limit_ns = S64_MAX;
	for (size_t i = 0; i < count; i++) {
		const struct note *note = &notes[i];
		bool stop_tick = true;

		context.sleep_length_ns = note->sleep_length_ns;
		context.next_event_ns = note->next_event_ns;
		idlewise_now.clock_ns = note->select_at_ns;
		idlewise_now.tick_stopped = note->tick_stopped;
		different += governor->select(&idlewise_driver, &idlewise_cpu, &stop_tick) != note->entered;
		idlewise_cpu.last_residency_ns = note->residency_ns;
		idlewise_cpu.poll_limit_ns = note->poll_limit_ns;
		idlewise_cpu.poll_time_limit = note->poll_time_limit;
		idlewise_now.clock_ns = note->reflect_at_ns;
		idlewise_now.got_tick = note->got_tick;
		if (governor->reflect)
			governor->reflect(&idlewise_cpu, note->entered);
	}
	idlewise_now.context = NULL;
	return different;
}
