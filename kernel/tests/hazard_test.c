// SPDX-License-Identifier: GPL-2.0
/* Tests of hazard that need its inside: it is compiled for user space, as for a replay. */
#include <stdio.h>

#include "../idlewise_hazard.c"

struct idlewise_kernel_now idlewise_now = { .tick_nsec = 4000000, .latency_limit_ns = NSEC_PER_SEC };

int cpuidle_register_governor(struct cpuidle_governor *governor)
{
	return governor != &hazard_governor;
}

static struct cpuidle_driver driver = {
	.state_count = 3,
	.states = {
		{ .flags = CPUIDLE_FLAG_POLLING },
		{ .exit_latency_ns = 2000, .target_residency_ns = 2000 },
		{ .exit_latency_ns = 290000, .target_residency_ns = 800000 },
	},
};
static struct cpuidle_device device;

/* A gap of so many nanoseconds, in front of a timer in 10 ms. */
static void gap(u64 ns)
{
	struct idlewise_context context = { .sleep_length_ns = 10000000, .next_event_ns = 4000000 };
	bool stop_tick = true;

	idlewise_now.context = &context;
	idlewise_now.clock_ns += 50000;
	device.last_residency_ns = ns;
	hazard_reflect(&device, hazard_select(&driver, &device, &stop_tick));
	idlewise_now.clock_ns += ns;
}

/* How long to poll is planned at the price of now. */
static bool polls_are_of_now(void)
{
	struct hazard now = hazards;
	unsigned int size;
	bool is_so = true;

	for (size = 0; size < SIZE_COUNT; size++) {
		if (!(now.known_sizes >> size & 1))
			continue;
		look_ahead(&now, size);
		is_so &= now.polls[size] == hazards.polls[size];
	}
	return is_so;
}

int main(void)
{
	u8 before[SIZE_COUNT];
	int i;

	hazard_enable(&driver, &device);
	for (i = 0; i < 64; i++) {
		gap(3000);
		gap(40000);
	}
	memcpy(before, hazards.polls, sizeof(before));
	lambda = LAMBDA_MAX;
	/* The size of the last gap alone would be looked at without this. */
	hazards.behind[0] = hazards.behind[1] = 0;
	gap(3000);
	if (!polls_are_of_now()) {
		printf("not ok - polls are planned at an old price\n");
		return 1;
	}
	if (!memcmp(before, hazards.polls, sizeof(before))) {
		printf("not ok - the price changes no poll, so this shows nothing\n");
		return 1;
	}
	if (!device.poll_limit_ns) {
		printf("not ok - nothing was polled, so this shows nothing\n");
		return 1;
	}
	hazard_disable(&driver, &device);
	if (device.poll_limit_ns) {
		printf("not ok - a limit for polling outlives the governor\n");
		return 1;
	}
	return 0;
}
