/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The `states=` parameter, and the rule for the idle routine without a driver. Plain C: the driver
 * includes it in the kernel, and tests/states_test.c in user space.
 *
 *   states=POLL,C0.2:0.2/0.2,C1:2/2,C6@0x20:290/800
 *          name[@method]:exit latency/target residency, microseconds, up to three decimals
 *
 * method: hlt, an MWAIT hint (0x20), or in test builds soft (a loop with MWAIT's semantics). POLL,
 * C0.1, C0.2, C1 and C1E need none.
 */
#ifndef IDLEWISE_STATES_H
#define IDLEWISE_STATES_H

#ifdef __KERNEL__
#include <linux/kernel.h>
#include <linux/string.h>
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))
typedef uint32_t u32;
typedef uint64_t u64;
#endif

#define IDLEWISE_STATE_COUNT_MAX	10
#define IDLEWISE_NAME_LENGTH_MAX	15
/* A day. Longer times are most likely in the wrong unit. */
#define IDLEWISE_SPAN_MAX_NS		86400000000000ULL

enum idlewise_method {
	IDLEWISE_POLL,
	IDLEWISE_UMWAIT,	/* hint: IDLEWISE_C01 or IDLEWISE_C02 */
	IDLEWISE_C1,		/* MWAIT C1, or HLT if that does not exist */
	IDLEWISE_MWAIT,		/* hint: EAX of MWAIT */
	IDLEWISE_HLT,
	IDLEWISE_SOFT,		/* test builds: a loop with MWAIT's semantics */
};

/* Bit 0 of UMWAIT's register. */
#define IDLEWISE_C02	0
#define IDLEWISE_C01	1

struct idlewise_state {
	char name[IDLEWISE_NAME_LENGTH_MAX + 1];
	enum idlewise_method method;
	u32 hint;
	u64 exit_latency_ns;
	u64 target_residency_ns;
};

struct idlewise_table {
	struct idlewise_state states[IDLEWISE_STATE_COUNT_MAX];
	int state_count;
};

/* Where a table is wrong, as an offset into the text, and why. */
struct idlewise_error {
	int at;
	const char *why;
};

/* Parses microseconds with up to three decimals, as nanoseconds; advances *text. */
static inline bool idlewise_parse_span(const char **text, u64 *span_ns)
{
	const char *at = *text;
	u64 whole = 0, part = 0, unit = 1000;

	if (*at < '0' || *at > '9')
		return false;
	for (; *at >= '0' && *at <= '9'; at++) {
		whole = whole * 10 + (u64)(*at - '0');
		if (whole > IDLEWISE_SPAN_MAX_NS / 1000)
			return false;
	}
	if (*at == '.') {
		at++;
		if (*at < '0' || *at > '9')
			return false;
		for (; *at >= '0' && *at <= '9' && unit > 1; at++) {
			unit /= 10;
			part += (u64)(*at - '0') * unit;
		}
		if (*at >= '0' && *at <= '9')
			return false;
	}
	*span_ns = whole * 1000 + part;
	*text = at;
	return true;
}

static inline bool idlewise_parse_hint(const char **text, u32 *hint)
{
	const char *at = *text + 2;
	u32 value = 0;
	int digit_count = 0;

	if (strncmp(*text, "0x", 2))
		return false;
	for (;; at++, digit_count++) {
		if (*at >= '0' && *at <= '9')
			value = value << 4 | (u32)(*at - '0');
		else if (*at >= 'a' && *at <= 'f')
			value = value << 4 | (u32)(*at - 'a' + 10);
		else
			break;
	}
	if (digit_count < 1 || digit_count > 2)
		return false;
	*hint = value;
	*text = at;
	return true;
}

/* The default method for a name. */
static inline bool idlewise_method_of_name(struct idlewise_state *state)
{
	static const struct {
		const char *name;
		enum idlewise_method method;
		u32 hint;
	} known[] = {
		{ "POLL", IDLEWISE_POLL, 0 },
		{ "C0.1", IDLEWISE_UMWAIT, IDLEWISE_C01 },
		{ "C0.2", IDLEWISE_UMWAIT, IDLEWISE_C02 },
		{ "C1", IDLEWISE_C1, 0x00 },
		{ "C1E", IDLEWISE_MWAIT, 0x01 },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(known); i++) {
		if (!strcmp(state->name, known[i].name)) {
			state->method = known[i].method;
			state->hint = known[i].hint;
			return true;
		}
	}
	return false;
}

/* Parses one state; advances *text past it, to the comma or the end. Returns an error or NULL. */
static inline const char *idlewise_parse_state(const char **text, struct idlewise_state *state)
{
	const char *at = *text;
	size_t length = strcspn(at, "@:,");

	if (!length || length > IDLEWISE_NAME_LENGTH_MAX)
		return "a state's name has 1 to 15 characters";
	memcpy(state->name, at, length);
	state->name[length] = '\0';
	at += length;

	if (*at == '@') {
		*text = ++at;
		if (!strncmp(at, "hlt", 3)) {
			state->method = IDLEWISE_HLT;
			at += 3;
		} else if (!strncmp(at, "soft", 4)) {
			state->method = IDLEWISE_SOFT;
			at += 4;
		} else if (idlewise_parse_hint(&at, &state->hint)) {
			state->method = IDLEWISE_MWAIT;
		} else {
			return "expected hlt or an MWAIT hint such as 0x20 behind the @";
		}
	} else if (!idlewise_method_of_name(state)) {
		return "no known state; give it a method: NAME@0x20 (an MWAIT hint) or NAME@hlt";
	}

	*text = at;
	if (*at == ':') {
		*text = ++at;
		if (!idlewise_parse_span(&at, &state->exit_latency_ns) || *at != '/')
			return "expected EXIT_LATENCY/TARGET_RESIDENCY in us, such as 290/800";
		*text = ++at;
		if (!idlewise_parse_span(&at, &state->target_residency_ns))
			return "expected a target residency in microseconds, such as 800";
		*text = at;
	} else if (state->method != IDLEWISE_POLL) {
		return "expected :EXIT_LATENCY/TARGET_RESIDENCY in microseconds, such as C1:2/2";
	}
	if (*at && *at != ',')
		return "expected a comma or the end";
	return NULL;
}

/* Fills `table` from `text`. Returns false and sets `error` if the text is invalid. */
static inline bool idlewise_parse_table(const char *text, struct idlewise_table *table,
					struct idlewise_error *error)
{
	const char *at = text;
	struct idlewise_table parsed;

	memset(&parsed, 0, sizeof(parsed));
	for (;;) {
		struct idlewise_state *state = &parsed.states[parsed.state_count];
		const char *start = at;
		int i;

		if (parsed.state_count == IDLEWISE_STATE_COUNT_MAX) {
			error->why = "more than 10 states";
			goto wrong;
		}
		error->why = idlewise_parse_state(&at, state);
		if (error->why)
			goto wrong;
		error->why = NULL;
		if (state->method == IDLEWISE_POLL && parsed.state_count)
			error->why = "only the first state may poll";
		for (i = 0; i < parsed.state_count; i++)
			if (!strcmp(state->name, parsed.states[i].name))
				error->why = "a name that an earlier state has";
		if (!error->why && parsed.state_count &&
		    (state->exit_latency_ns < state[-1].exit_latency_ns ||
		     state->target_residency_ns < state[-1].target_residency_ns))
			error->why = "below the earlier state's; order states from shallow on";
		if (error->why) {
			at = start;
			goto wrong;
		}
		parsed.state_count++;
		if (!*at)
			break;
		at++;
	}
	*table = parsed;
	return true;
wrong:
	error->at = (int)(at - text);
	return false;
}

/*
 * cpuidle assumes that target residencies include exit latencies. Some real tables break that rule
 * (Bay Trail's C6N: 300/275), so this is a doubt: most often the two figures were swapped.
 */
static inline bool idlewise_latency_is_doubtful(const struct idlewise_state *state)
{
	return state->exit_latency_ns > state->target_residency_ns;
}

/* What CPUID leaf 5 says about MWAIT. */
struct idlewise_mwait_leaf {
	bool enumerates_extensions;
	bool breaks_on_interrupt;	/* whether masked interrupts can end it */
	u32 substate_counts;		/* EDX: four bits for each C-state, C0 first */
};

/* The C-state that a hint requests: 0x00 is C1, 0x10 is C2, and 0xf0 is C0. */
static inline u32 idlewise_cstate_of_hint(u32 hint)
{
	return ((hint >> 4) + 1) & 0xf;
}

/*
 * Whether the CPU lists a hint's C-state. The leaf only counts its sub-states and does not say
 * which they are: their numbers have gaps (0x58 is a hint on Bay Trail, 0x33 on Skylake).
 */
static inline bool idlewise_hint_is_listed(struct idlewise_mwait_leaf leaf, u32 hint)
{
	u32 cstate = idlewise_cstate_of_hint(hint);

	if (!leaf.enumerates_extensions)
		return hint == 0;
	return cstate < 8 && (leaf.substate_counts >> (4 * cstate) & 0xf);
}

/* What a state's duties depend on. */
struct idlewise_cpu_facts {
	bool timer_always_runs;		/* ARAT */
	bool tsc_always_runs;		/* invariant TSC */
	bool c1_stops_timer;		/* AMD's C1E */
	bool has_tiles;			/* AMX */
	bool keeps_ibrs;		/* the kernel runs with IBRS set (retbleed) */
	bool breaks_on_interrupt;	/* from leaf 5 */
};

/* What entering a state requires besides the instruction, as in the kernel's own drivers. */
struct idlewise_duties {
	bool timer_stop;	/* another CPU's timer must end the stay */
	bool leave_mm;		/* drop user addresses, so that no TLB flush wakes the CPU */
	bool tsc_stop;		/* the TSC cannot be a clock after the first entry */
	bool release_tiles;	/* tile registers in use keep a core out of deep states */
	bool lift_ibrs;		/* IBRS slows down the sibling */
	bool suspend_to_idle;	/* never enables interrupts, so the clock may be suspended */
	bool play_dead;		/* deep enough to be useful for an offline CPU */
};

static inline struct idlewise_duties idlewise_duties(const struct idlewise_state *state,
						     struct idlewise_cpu_facts facts)
{
	u32 cstate = state->method == IDLEWISE_MWAIT ? idlewise_cstate_of_hint(state->hint) : 1;
	bool is_masked = state->method == IDLEWISE_MWAIT && facts.breaks_on_interrupt;
	bool is_deep = cstate > 1;
	bool halts = state->method == IDLEWISE_MWAIT || state->method == IDLEWISE_HLT;

	return (struct idlewise_duties){
		.timer_stop = is_deep ? !facts.timer_always_runs : halts && facts.c1_stops_timer,
		.leave_mm = is_deep,
		.tsc_stop = cstate > 2 && !facts.tsc_always_runs,
		.release_tiles = is_deep && facts.has_tiles,
		.lift_ibrs = is_deep && is_masked && facts.keeps_ibrs,
		.suspend_to_idle = is_masked,
		.play_dead = is_deep,
	};
}

/*
 * How an idle CPU waits without a cpuidle driver. The first row whose fact is true decides. These
 * are the rows of BRANCHES in crates/idlewise-machine/src/boot/mod.rs that kernels since 6.1 ask. A test
 * compares them.
 */
#define IDLEWISE_BOOT_BRANCHES(BRANCH) \
	BRANCH(poll_requested, POLL, "idle=poll is on the command line") \
	BRANCH(xen_decided, HALT, "Xen disables cpuidle and chooses HLT before the kernel can") \
	BRANCH(halt_decided, HALT, "idle=halt is on the command line") \
	BRANCH(has_e400, E400_HALT, "the CPU has AMD erratum 400: in C1E its APIC timer stops") \
	BRANCH(halt_requested, NO_MWAIT, "idle=halt is on the command line") \
	BRANCH(mwait_forbidden, NO_MWAIT, "idle=nomwait is on the command line") \
	BRANCH(no_mwait, NO_MWAIT, "the CPU has no MWAIT, or the firmware or hypervisor hides it") \
	BRANCH(leaf_missing, NO_MWAIT, "CPUID ends before leaf 5, so the kernel disables MWAIT") \
	BRANCH(monitor_bug, NO_MWAIT, "an erratum of this CPU lets MONITOR miss stores") \
	BRANCH(c1e_found, NO_MWAIT, "the APIC timer stops in C1E (AMD erratum 400)") \
	BRANCH(no_extensions, MWAIT, "CPUID leaf 5 lists no extensions, so MWAIT without hints is safe") \
	BRANCH(has_c1, MWAIT, "CPUID leaf 5 lists C1 substates") \
	BRANCH(no_c1, NO_MWAIT, "CPUID leaf 5 lists extensions but no C1 substate")

struct idlewise_boot_facts {
#define IDLEWISE_FACT(fact, answer, why) bool fact;
	IDLEWISE_BOOT_BRANCHES(IDLEWISE_FACT)
#undef IDLEWISE_FACT
	bool tdx_guest;			/* without MWAIT it asks the TDX module to wait */
};

struct idlewise_boot_answer {
	const char *routine;
	const char *reason;
	bool is_mwait;
};

static inline struct idlewise_boot_answer idlewise_default_idle(struct idlewise_boot_facts facts)
{
	enum {
		IDLEWISE_BOOT_POLL,
		IDLEWISE_BOOT_HALT,
		IDLEWISE_BOOT_E400_HALT,
		IDLEWISE_BOOT_MWAIT,
		IDLEWISE_BOOT_NO_MWAIT,
	};
	const char *const names[] = {
		[IDLEWISE_BOOT_POLL] = "poll",
		[IDLEWISE_BOOT_HALT] = "HLT",
		[IDLEWISE_BOOT_E400_HALT] = "E400-aware HLT",
		[IDLEWISE_BOOT_MWAIT] = "MWAIT C1",
		[IDLEWISE_BOOT_NO_MWAIT] = facts.tdx_guest ? "HLT by TDX" : "HLT",
	};

#define IDLEWISE_ASK(fact, answer, why) \
	if (facts.fact) \
		return (struct idlewise_boot_answer){ \
			.routine = names[IDLEWISE_BOOT_##answer], \
			.reason = why, \
			.is_mwait = IDLEWISE_BOOT_##answer == IDLEWISE_BOOT_MWAIT, \
		};
	IDLEWISE_BOOT_BRANCHES(IDLEWISE_ASK)
#undef IDLEWISE_ASK
	return (struct idlewise_boot_answer){
		.routine = names[IDLEWISE_BOOT_NO_MWAIT], .reason = "no fact is known",
	};
}

#endif /* IDLEWISE_STATES_H */
