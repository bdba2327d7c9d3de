// SPDX-License-Identifier: GPL-2.0
/*
 * Unit tests of 6.12's teo.c and menu.c, unmodified. tests/images.sh puts the files beside this one.
 *
 * The kernel around a governor is a struct: the next timer, the tick, PM QoS and the clock are what a
 * scene says. A scene is a history of idle periods and then one decision. It expects a state, whether
 * the tick may stop, and how often the sleep length is asked for. Each scene runs at 100, 250 and
 * 1000 Hz unless it names one. The answers are what the files do, not what they should do.
 *
 * Not tested: more than one CPU, and iowait, which 6.12 does not look at.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpuidle.h>
#include <linux/hrtimer.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched/clock.h>
#include <linux/sched/stat.h>
#include <linux/smp.h>
#include <linux/tick.h>
#include <linux/time.h>

#include "idlewise_kunit.h"

static struct {
	s64 sleep_length_ns, tick_left_ns, latency_limit_ns;
	u64 clock_ns;
	long tick_period_ns;
	bool is_tick_stopped, did_tick_wake;
	int query_count;
} world;

static ktime_t ask_sleep_length(ktime_t *delta_next)
{
	world.query_count++;
	*delta_next = min(world.tick_left_ns, world.sleep_length_ns);
	return world.sleep_length_ns;
}

#define tick_nohz_get_sleep_length(next)	ask_sleep_length(next)
#define tick_nohz_tick_stopped()		(world.is_tick_stopped)
#define tick_nohz_idle_got_tick()		(world.did_tick_wake)
#define cpuidle_governor_latency_req(cpu)	(world.latency_limit_ns)
#define local_clock()				(world.clock_ns)
#define cpuidle_register_governor(governor)	((void)(governor), 0)
#undef TICK_NSEC
#define TICK_NSEC				(world.tick_period_ns)
#undef postcore_initcall
#define postcore_initcall(function)		static int (*function##_unused)(void) __maybe_unused = function
#undef __init
#define __init					__maybe_unused

#include "teo.c"
#include "menu.c"

#undef __init
#define __init					__section(".init.text")

#define STATE(us_exit, us_target)	\
	{ .exit_latency_ns = (us_exit) * 1000, .target_residency_ns = (us_target) * 1000 }
#define POLL				{ .flags = CPUIDLE_FLAG_POLLING }

static struct cpuidle_driver spr = {
	.states = { POLL, STATE(1, 1), STATE(2, 4), STATE(290, 800) }, .state_count = 4,
};

static struct cpuidle_driver hsw = {
	.states = {
		POLL, STATE(2, 2), STATE(10, 20), STATE(33, 100), STATE(133, 400), STATE(166, 500),
		STATE(300, 900), STATE(600, 1800), STATE(2600, 7700),
	},
	.state_count = 9,
};

static struct cpuidle_driver byt = {
	.states = {
		POLL, STATE(1, 1), STATE(300, 275), STATE(500, 560), STATE(1200, 4000), STATE(10000, 20000),
	},
	.state_count = 6,
};

enum end { BY_EVENT, BY_TICK, BY_POLL_LIMIT };

struct answer {
	int state;
	bool stop_tick;
	int query_count;
};

struct scene {
	const char *what;
	struct cpuidle_driver *driver;
	/* 0: at each rate. */
	int hz;
	/* The history: so many idle periods of this length, which ended so, while a timer was that far ahead. */
	int idle_count;
	s64 idle_us, timer_then_us;
	enum end end;
	/* Whether another governor came in between. */
	bool is_enabled_again;
	/* The decision. Without has_limit, there is no latency limit. */
	s64 timer_us, limit_us;
	bool has_limit, is_tick_stopped;
	unsigned int disabled;
	struct answer teo, menu;
};

#define SECOND_US	1000000

static const struct scene scenes[] = {
#include "idlewise_governor_scenes.h"
};

/* menu's data are those of the current CPU, so the caller stays there. */
static struct answer decide(struct cpuidle_governor *governor, struct cpuidle_driver *driver,
			    struct cpuidle_device *device)
{
	struct answer answer = { .stop_tick = true };

	world.query_count = 0;
	answer.state = governor->select(driver, device, &answer.stop_tick);
	answer.query_count = world.query_count;
	return answer;
}

static void idle_once(struct cpuidle_governor *governor, struct cpuidle_driver *driver,
		      struct cpuidle_device *device, const struct scene *scene)
{
	struct answer answer;

	world.sleep_length_ns = scene->timer_then_us * 1000;
	world.tick_left_ns = world.tick_period_ns / 2;
	answer = decide(governor, driver, device);
	world.clock_ns += scene->idle_us * 1000;
	device->last_residency_ns = scene->idle_us * 1000;
	device->poll_time_limit = scene->end == BY_POLL_LIMIT;
	world.did_tick_wake = scene->end == BY_TICK;
	governor->reflect(device, answer.state);
}

static struct answer play(struct cpuidle_governor *governor, const struct scene *scene, int hz)
{
	static struct cpuidle_device device;
	struct answer answer;
	int i;

	memset(&device, 0, sizeof(device));
	memset(&world, 0, sizeof(world));
	world.tick_period_ns = NSEC_PER_SEC / hz;
	world.latency_limit_ns = S64_MAX;
	device.cpu = get_cpu();
	device.last_state_idx = -1;
	governor->enable(scene->driver, &device);
	for (i = 0; i < scene->idle_count; i++)
		idle_once(governor, scene->driver, &device, scene);
	if (scene->is_enabled_again) {
		device.last_state_idx = -1;
		governor->enable(scene->driver, &device);
	}
	for (i = 0; i < scene->driver->state_count; i++)
		device.states_usage[i].disable = scene->disabled >> i & 1;
	world.sleep_length_ns = scene->timer_us * 1000;
	world.tick_left_ns = world.tick_period_ns / 2;
	world.is_tick_stopped = scene->is_tick_stopped;
	if (scene->is_tick_stopped)
		world.tick_left_ns = world.sleep_length_ns;
	if (scene->has_limit)
		world.latency_limit_ns = scene->limit_us * 1000;
	answer = decide(governor, scene->driver, &device);
	put_cpu();
	return answer;
}

static void play_all(struct kunit *test, struct cpuidle_governor *governor, bool is_teo)
{
	static const int rates_hz[] = { 100, 250, 1000 };
	int i, j;

	for (i = 0; i < ARRAY_SIZE(scenes); i++) {
		const struct scene *scene = &scenes[i];
		struct answer expected = is_teo ? scene->teo : scene->menu;

		for (j = 0; j < ARRAY_SIZE(rates_hz); j++) {
			struct answer answer;

			if (scene->hz && scene->hz != rates_hz[j])
				continue;
			answer = play(governor, scene, rates_hz[j]);
			KUNIT_EXPECT_EQ_MSG(test, answer.state, expected.state, "%s, %d Hz", scene->what,
					    rates_hz[j]);
			KUNIT_EXPECT_EQ_MSG(test, answer.stop_tick, expected.stop_tick, "%s, %d Hz",
					    scene->what, rates_hz[j]);
			KUNIT_EXPECT_EQ_MSG(test, answer.query_count, expected.query_count, "%s, %d Hz",
					    scene->what, rates_hz[j]);
		}
	}
}

static void teo_decides(struct kunit *test)
{
	play_all(test, &teo_governor, true);
}

static void menu_decides(struct kunit *test)
{
	play_all(test, &menu_governor, false);
}

static struct kunit_case governor_cases[] = {
	KUNIT_CASE(teo_decides),
	KUNIT_CASE(menu_decides),
	{}
};

static struct kunit_suite governor_suite = {
	.name = "cpuidle_governors",
	.test_cases = governor_cases,
};
kunit_test_suite(governor_suite);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Unit tests of the kernel's own teo and menu");
