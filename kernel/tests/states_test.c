// SPDX-License-Identifier: GPL-2.0
/* Tests the table's parser, its rules and the boot rule, whose rows idlewise's own tests compare with boot.rs. */
#include <stdio.h>
#include <stdlib.h>

#include "../idlewise_states.h"

static int failure_count;

#define CHECK(condition) do { \
	if (!(condition)) { \
		printf("not ok - %s:%d: %s\n", __FILE__, __LINE__, #condition); \
		failure_count++; \
	} \
} while (0)

static struct idlewise_table table;
static struct idlewise_error error;

static void check_refused(const char *text, int at, const char *why)
{
	struct idlewise_table before = table;

	if (idlewise_parse_table(text, &table, &error) || error.at != at ||
	    !strstr(error.why, why)) {
		printf("not ok - '%s': at %d: %s\n", text, error.at, error.why ? error.why : "accepted");
		failure_count++;
	}
	CHECK(!memcmp(&before, &table, sizeof(table)));
}

static void tables(void)
{
	CHECK(idlewise_parse_table("POLL,C0.2:0.1/0.25,C1:2/2,C1E:4/4,C6@0x20:290/800.005", &table, &error));
	CHECK(table.state_count == 5);
	CHECK(table.states[1].method == IDLEWISE_UMWAIT && table.states[1].hint == IDLEWISE_C02);
	CHECK(table.states[1].exit_latency_ns == 100 && table.states[1].target_residency_ns == 250);
	CHECK(table.states[2].method == IDLEWISE_C1);
	CHECK(table.states[3].method == IDLEWISE_MWAIT && table.states[3].hint == 1);
	CHECK(table.states[4].hint == 0x20 && table.states[4].target_residency_ns == 800005);
	check_refused("", 0, "1 to 15 characters");
	check_refused("POLL,", 5, "1 to 15 characters");
	check_refused("POLL,AVeryLongNameOfAState:1/1", 5, "1 to 15 characters");
	check_refused("POLL,Cx:1/1", 5, "give it a method");
	check_refused("POLL,Cx@:1/1", 8, "expected hlt");
	check_refused("POLL,Cx@0xg:1/1", 8, "expected hlt");
	check_refused("POLL,Cx@0x123:1/1", 8, "expected hlt");
	check_refused("POLL,C1", 7, "such as C1:2/2");
	check_refused("POLL,C1:x/2", 8, "such as 290/800");
	check_refused("POLL,C1:2/x", 10, "target residency");
	check_refused("POLL,C1:2/2.0001", 10, "target residency");
	check_refused("POLL,C1:99999999999999999999/2", 8, "such as 290/800");
	check_refused("POLL,C1:2/2;", 11, "a comma or the end");
	check_refused("C1:2/2,POLL", 7, "only the first state may poll");
	check_refused("POLL,C1:2/2,C1:3/3", 12, "an earlier state has");
	check_refused("POLL,C1:20/20,C1E:10/30", 14, "order states");
	check_refused("POLL,C1:1/30,C1E:10/20", 13, "order states");
	check_refused("POLL,a@hlt:1/1,b@hlt:1/1,c@hlt:1/1,d@hlt:1/1,e@hlt:1/1,f@hlt:1/1,g@hlt:1/1,h@hlt:1/1,i@hlt:1/1,j@hlt:1/1", 95, "more than 10");
}

/* Sub-states' numbers have gaps and CPUID only counts them: only a count of 0 refuses a hint. */
static void hints(void)
{
	/* EDX of Bay Trail (0x33000020) and Sapphire Rapids (0x2020). */
	const struct idlewise_mwait_leaf bay_trail = { true, true, 0x33000020 };
	const struct idlewise_mwait_leaf sapphire_rapids = { true, true, 0x00002020 };
	const struct idlewise_mwait_leaf all = { true, true, 0xffffffff };
	const struct idlewise_mwait_leaf plain = { false, false, 0xffffffff };
	u32 hint;

	CHECK(idlewise_hint_is_listed(bay_trail, 0x00) && idlewise_hint_is_listed(bay_trail, 0x01));
	CHECK(idlewise_hint_is_listed(bay_trail, 0x52) && idlewise_hint_is_listed(bay_trail, 0x58));
	CHECK(idlewise_hint_is_listed(bay_trail, 0x60) && idlewise_hint_is_listed(bay_trail, 0x64));
	CHECK(!idlewise_hint_is_listed(bay_trail, 0x10) && !idlewise_hint_is_listed(bay_trail, 0x40));
	CHECK(idlewise_hint_is_listed(sapphire_rapids, 0x20) && idlewise_hint_is_listed(sapphire_rapids, 0x21));
	CHECK(!idlewise_hint_is_listed(sapphire_rapids, 0x10) && !idlewise_hint_is_listed(sapphire_rapids, 0x30));
	CHECK(!idlewise_hint_is_listed(sapphire_rapids, 0xf0));
	/* The leaf has eight fields; no hint reads past them (the sanitizer would notice). */
	for (hint = 0; hint <= 0xff; hint++) {
		CHECK(idlewise_hint_is_listed(all, hint) == (hint < 0x70 || hint >= 0xf0));
		CHECK(idlewise_hint_is_listed(plain, hint) == (hint == 0));
	}
}

static struct idlewise_duties duties(const char *state, struct idlewise_cpu_facts facts)
{
	CHECK(idlewise_parse_table(state, &table, &error));
	/* The driver's choice if MWAIT C1 exists. */
	if (table.states[0].method == IDLEWISE_C1)
		table.states[0].method = IDLEWISE_MWAIT;
	return idlewise_duties(&table.states[0], facts);
}

static bool same(struct idlewise_duties left, struct idlewise_duties right)
{
	return !memcmp(&left, &right, sizeof(left));
}

/* The same as intel_idle and acpi_idle do for these states. */
static void deep_states(void)
{
	const struct idlewise_cpu_facts today = {
		.timer_always_runs = true, .tsc_always_runs = true, .breaks_on_interrupt = true,
	};
	struct idlewise_cpu_facts facts = today;
	const struct idlewise_duties none = { false };
	const struct idlewise_duties shallow = { .suspend_to_idle = true };
	const struct idlewise_duties deep = { .leave_mm = true, .suspend_to_idle = true, .play_dead = true };
	struct idlewise_duties expected;

	CHECK(same(duties("C1:2/2", today), shallow));
	CHECK(same(duties("C1E:4/4", today), shallow));
	CHECK(same(duties("C0@0xf0:1/1", today), shallow) || !"0xf0 is C0");
	CHECK(same(duties("C6@0x20:290/800", today), deep));
	CHECK(same(duties("C1@hlt:2/2", today), none));
	CHECK(same(duties("C0.2:0.1/0.1", today), none));
	/* Sapphire Rapids has tiles. */
	facts.has_tiles = true;
	expected = deep;
	expected.release_tiles = true;
	CHECK(same(duties("C6@0x20:290/800", facts), expected));
	CHECK(same(duties("C1E:4/4", facts), shallow));
	/* Skylake with retbleed's mitigation. */
	facts = today;
	facts.keeps_ibrs = true;
	expected = deep;
	expected.lift_ibrs = true;
	CHECK(same(duties("C6@0x20:290/800", facts), expected));
	CHECK(same(duties("C1:2/2", facts), shallow));
	/* Core 2: the timer stops, and from C3 on the TSC too. */
	facts = (struct idlewise_cpu_facts){ .breaks_on_interrupt = true };
	expected = deep;
	expected.timer_stop = true;
	CHECK(same(duties("C2@0x10:20/20", facts), expected));
	expected.tsc_stop = true;
	CHECK(same(duties("C3@0x20:40/100", facts), expected));
	CHECK(same(duties("C1:2/2", facts), shallow));
	/* AMD's C1E, with any instruction. */
	facts.c1_stops_timer = true;
	CHECK(duties("C1@hlt:2/2", facts).timer_stop && duties("C1@0x00:2/2", facts).timer_stop);
	CHECK(!duties("C0.2:0.1/0.1", facts).timer_stop);
	/* Interrupts must be enabled, so not with the clock suspended or IBRS lifted. */
	facts = (struct idlewise_cpu_facts){ .timer_always_runs = true, .keeps_ibrs = true };
	CHECK(!duties("C6@0x20:290/800", facts).suspend_to_idle && !duties("C6@0x20:290/800", facts).lift_ibrs);
}

static void doubts(void)
{
	CHECK(idlewise_parse_table("POLL,C1:2/2,C6N@0x58:300/275", &table, &error));
	CHECK(!idlewise_latency_is_doubtful(&table.states[0]));
	CHECK(!idlewise_latency_is_doubtful(&table.states[1]));
	CHECK(idlewise_latency_is_doubtful(&table.states[2]));
}

/* Any text gives a valid table, or an error within the text. */
static void any_text(void)
{
	static const char pieces[] = "POLC0.12E@hlt0x:/,9 ";
	unsigned int seed = 1;
	long round;

	for (round = 0; round < 2000000; round++) {
		char text[40];
		int length, i;

		seed = seed * 1103515245 + 12345;
		length = (int)(seed >> 16) % (int)(sizeof(text) - 1);
		for (i = 0; i < length; i++) {
			seed = seed * 1103515245 + 12345;
			text[i] = pieces[(seed >> 16) % (sizeof(pieces) - 1)];
		}
		text[length] = '\0';
		if (!idlewise_parse_table(text, &table, &error)) {
			if (error.at < 0 || error.at > length || !error.why)
				CHECK(!"an error without a place");
			continue;
		}
		CHECK(table.state_count >= 1 && table.state_count <= IDLEWISE_STATE_COUNT_MAX);
		for (i = 1; i < table.state_count; i++)
			CHECK(table.states[i].target_residency_ns >= table.states[i - 1].target_residency_ns);
	}
}

static void check_answer(struct idlewise_boot_facts facts, const char *routine, const char *reason)
{
	struct idlewise_boot_answer answer = idlewise_default_idle(facts);

	if (strcmp(answer.routine, routine) || !strstr(answer.reason, reason) ||
	    answer.is_mwait != !strcmp(routine, "MWAIT C1")) {
		printf("not ok - %s: %s\n", answer.routine, answer.reason);
		failure_count++;
	}
}

/* Each fact decides over those below it in the table, so they are added from the last to the first. */
static void boot_rule(void)
{
	struct idlewise_boot_facts facts = { 0 };

	check_answer(facts, "HLT", "no fact");
	facts.no_c1 = true;
	check_answer(facts, "HLT", "no C1 substate");
	facts.tdx_guest = true;
	check_answer(facts, "HLT by TDX", "no C1 substate");
	facts.has_c1 = true;
	check_answer(facts, "MWAIT C1", "lists C1 substates");
	facts.no_extensions = true;
	check_answer(facts, "MWAIT C1", "no extensions");
	facts.c1e_found = true;
	check_answer(facts, "HLT by TDX", "C1E");
	facts.tdx_guest = false;
	check_answer(facts, "HLT", "C1E");
	facts.monitor_bug = true;
	check_answer(facts, "HLT", "miss stores");
	facts.leaf_missing = true;
	check_answer(facts, "HLT", "before leaf 5");
	facts.no_mwait = true;
	check_answer(facts, "HLT", "no MWAIT");
	facts.mwait_forbidden = true;
	check_answer(facts, "HLT", "idle=nomwait");
	facts.halt_requested = true;
	check_answer(facts, "HLT", "idle=halt");
	facts.has_e400 = true;
	check_answer(facts, "E400-aware HLT", "erratum 400");
	facts.halt_decided = true;
	check_answer(facts, "HLT", "idle=halt");
	facts.xen_decided = true;
	check_answer(facts, "HLT", "Xen");
	facts.poll_requested = true;
	check_answer(facts, "poll", "idle=poll");
}

int main(void)
{
	tables();
	hints();
	deep_states();
	doubts();
	any_text();
	boot_rule();
	if (!failure_count)
		printf("ok - the table's parser, its hints and duties, and the boot rule\n");
	return failure_count ? EXIT_FAILURE : EXIT_SUCCESS;
}
