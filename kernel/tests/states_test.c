// SPDX-License-Identifier: GPL-2.0
/* The table's parser and the boot rule in user space, with the cases of idlewise-core's boot.rs. */
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

/* Any text ends, in a table that is in order or in an error inside the text. */
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

	if (strcmp(answer.routine, routine) || !strstr(answer.reason, reason)) {
		printf("not ok - %s: %s\n", answer.routine, answer.reason);
		failure_count++;
	}
}

static void boot_rule(void)
{
	const struct idlewise_boot_facts family_0fh = { 0 };
	const struct idlewise_boot_facts family_10h = {
		.mwait_supported = true, .enumerates_extensions = true,
	};
	const struct idlewise_boot_facts plain = { .mwait_supported = true };
	/* AMD from family 17h on, and Intel. */
	struct idlewise_boot_facts facts = {
		.mwait_supported = true, .enumerates_extensions = true, .c1_substate_count = 1,
	};

	check_answer(family_0fh, "HLT", "no MWAIT");
	check_answer(family_10h, "HLT", "no C1 substate");
	check_answer(plain, "MWAIT C1", "no extensions");
	check_answer(facts, "MWAIT C1", "C1 substates");
	facts.mwait_broken = true;
	check_answer(facts, "HLT", "erratum");
	facts.mwait_broken = false;
	facts.mwait_forbidden = true;
	check_answer(facts, "HLT", "idle=nomwait");
	facts.mwait_forbidden = false;
	facts.halt_requested = true;
	check_answer(facts, "HLT", "idle=halt");
	facts.has_driver = true;
	check_answer(facts, "cpuidle driver", "registered");
	facts.poll_requested = true;
	check_answer(facts, "poll", "idle=poll");
}

int main(void)
{
	tables();
	any_text();
	boot_rule();
	if (!failure_count)
		printf("ok - the table's parser and the boot rule\n");
	return failure_count ? EXIT_FAILURE : EXIT_SUCCESS;
}
