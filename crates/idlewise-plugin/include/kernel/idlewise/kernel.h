/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The part of the kernel that governors see, for user space: the unmodified governors of drivers/cpuidle/
 * compile with this file. Every <linux/...> header of this tree includes it, and docs/plugins.md lists what
 * it defines (names that begin with an underscore or "idlewise" are not for governors).
 *
 * Written for idlewise from what governors use; nothing is copied from a kernel. Where the kernel asks its
 * timers, clocks and scheduler, idlewise's replay answers, through `idlewise_now`.
 *
 * Each replayed CPU loads its own copy of the governor, so per-CPU data is plain data.
 */
#ifndef IDLEWISE_KERNEL_H
#define IDLEWISE_KERNEL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <idlewise/version.h>
#include <idlewise_governor.h>

/* Types */
typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef unsigned long long u64;
typedef long long s64;
typedef s64 ktime_t;
typedef unsigned int uint;
typedef unsigned long ulong;

/* Limits and units */
#define U8_MAX UINT8_MAX
#define U16_MAX UINT16_MAX
#define U32_MAX UINT32_MAX
#define U64_MAX ULLONG_MAX
#define S32_MAX INT32_MAX
#define S64_MAX LLONG_MAX
#define S64_MIN LLONG_MIN
#define KTIME_MAX S64_MAX
#define NSEC_PER_USEC 1000L
#define NSEC_PER_MSEC 1000000L
#define NSEC_PER_SEC 1000000000L
#define USEC_PER_MSEC 1000L
#define USEC_PER_SEC 1000000L
#define MSEC_PER_SEC 1000L
#define BITS_PER_LONG (8 * (int)sizeof(long))
#define BIT(nr) (1UL << (nr))
#define BIT_ULL(nr) (1ULL << (nr))
#define PAGE_SIZE 4096
#define EPERM 1
#define ENOMEM 12
#define ENODEV 19
#define EINVAL 22
#define CONFIG_SMP 1
#define CONFIG_NO_HZ_COMMON 1

/* Language */
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define __init
#define __initdata
#define __exit
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __maybe_unused __attribute__((unused))
#define __aligned(count) __attribute__((aligned(count)))
#define __packed __attribute__((packed))
#define __read_mostly
#define __ro_after_init
#define noinline __attribute__((noinline))
#define fallthrough __attribute__((fallthrough))
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define barrier() __asm__ volatile("" ::: "memory")
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define container_of(pointer, type, member)                                                        \
	((type *)((char *)(pointer) - offsetof(type, member)))
#define BUILD_BUG_ON(condition) _Static_assert(!(condition), #condition)
#define BUG() __builtin_trap()
#define BUG_ON(condition)                                                                          \
	do {                                                                                     \
		if (unlikely(condition))                                                         \
			BUG();                                                                 \
	} while (0)
#define WARN_ON(condition) unlikely(!!(condition))
#define WARN_ON_ONCE(condition) WARN_ON(condition)

/* Arithmetic */
#define min(a, b)                                                                                  \
	({                                                                                       \
		__typeof__(a) _a = (a);                                                          \
		__typeof__(b) _b = (b);                                                          \
		_a < _b ? _a : _b;                                                               \
	})
#define max(a, b)                                                                                  \
	({                                                                                       \
		__typeof__(a) _a = (a);                                                          \
		__typeof__(b) _b = (b);                                                          \
		_a > _b ? _a : _b;                                                               \
	})
#define min_t(type, a, b) min((type)(a), (type)(b))
#define max_t(type, a, b) max((type)(a), (type)(b))
#define min3(a, b, c) min(min(a, b), c)
#define max3(a, b, c) max(max(a, b), c)
#define clamp(value, low, high) min(max(value, low), high)
#define clamp_t(type, value, low, high) clamp((type)(value), (type)(low), (type)(high))
#define clamp_val(value, low, high) clamp_t(__typeof__(value), value, low, high)
#define swap(a, b)                                                                                 \
	do {                                                                                     \
		__typeof__(a) _swapped = (a);                                                    \
		(a) = (b);                                                                       \
		(b) = _swapped;                                                                  \
	} while (0)
#define DIV_ROUND_UP(n, d) (((n) + (d)-1) / (d))
#define DIV_ROUND_CLOSEST(n, d) (((n) + (d) / 2) / (d))
#define DIV_ROUND_CLOSEST_ULL(n, d) ((u64)((u64)(n) + (d) / 2) / (d))
#define do_div(n, base)                                                                            \
	({                                                                                       \
		u32 _base = (base);                                                              \
		u32 _rest = (n) % _base;                                                         \
		(n) = (n) / _base;                                                               \
		_rest;                                                                           \
	})
static inline u64 div_u64(u64 dividend, u32 divisor) { return dividend / divisor; }
static inline s64 div_s64(s64 dividend, s32 divisor) { return dividend / divisor; }
static inline u64 div64_u64(u64 dividend, u64 divisor) { return dividend / divisor; }
static inline s64 div64_s64(s64 dividend, s64 divisor) { return dividend / divisor; }
static inline u64 div64_ul(u64 dividend, unsigned long divisor) { return dividend / divisor; }
static inline u64 mul_u64_u32_shr(u64 a, u32 factor, unsigned int shift)
{
	return (u64)(((unsigned __int128)a * factor) >> shift);
}
static inline u64 mul_u64_u64_div_u64(u64 a, u64 factor, u64 divisor)
{
	return (u64)((unsigned __int128)a * factor / divisor);
}
static inline int fls(unsigned int x) { return x ? 32 - __builtin_clz(x) : 0; }
static inline int fls64(u64 x) { return x ? 64 - __builtin_clzll(x) : 0; }
static inline unsigned long __ffs(unsigned long x) { return __builtin_ctzl(x); }
#define ilog2(n) (fls64(n) - 1)
static inline unsigned long int_sqrt(unsigned long x)
{
	unsigned long root = 0;
	for (unsigned long bit = 1UL << (BITS_PER_LONG - 2); bit; bit >>= 2) {
		unsigned long trial = root + bit;
		root >>= 1;
		if (x >= trial) {
			x -= trial;
			root += bit;
		}
	}
	return root;
}

/* What replay says: set by the loader before each call of the governor. */
struct idlewise_kernel_now {
	struct idlewise_context *context; /* null outside of select */
	u64 clock_ns;
	s64 latency_limit_ns;
	s64 next_hrtimer_ns;
	unsigned int iowait_count;
	unsigned int idle_calls;
	bool tick_stopped;
	bool got_tick;
	bool is_in_fpu_section;
	long tick_nsec;
};
extern __attribute__((visibility("hidden"))) struct idlewise_kernel_now idlewise_now;

/* Time */
#ifdef IDLEWISE_FIXED_HZ
#define HZ IDLEWISE_FIXED_HZ
#define TICK_NSEC ((NSEC_PER_SEC + HZ / 2) / HZ)
#else
#define TICK_NSEC (idlewise_now.tick_nsec)
#define HZ (NSEC_PER_SEC / TICK_NSEC)
#endif
#define TICK_USEC ((USEC_PER_SEC + HZ / 2) / HZ)
#define jiffies ((unsigned long)(idlewise_now.clock_ns / (u64)TICK_NSEC))
static inline ktime_t ktime_get(void) { return (ktime_t)idlewise_now.clock_ns; }
static inline u64 ktime_get_ns(void) { return idlewise_now.clock_ns; }
static inline u64 local_clock(void) { return idlewise_now.clock_ns; }
static inline u64 local_clock_noinstr(void) { return idlewise_now.clock_ns; }
static inline u64 sched_clock(void) { return idlewise_now.clock_ns; }
static inline ktime_t ktime_add(ktime_t a, ktime_t b) { return a + b; }
static inline ktime_t ktime_sub(ktime_t a, ktime_t b) { return a - b; }
static inline ktime_t ktime_add_ns(ktime_t a, u64 ns) { return a + (s64)ns; }
static inline ktime_t ns_to_ktime(u64 ns) { return (ktime_t)ns; }
static inline ktime_t us_to_ktime(u64 us) { return (ktime_t)(us * NSEC_PER_USEC); }
static inline ktime_t ms_to_ktime(u64 ms) { return (ktime_t)(ms * NSEC_PER_MSEC); }
static inline s64 ktime_to_ns(ktime_t time) { return time; }
static inline s64 ktime_to_us(ktime_t time) { return time / NSEC_PER_USEC; }
static inline s64 ktime_to_ms(ktime_t time) { return time / NSEC_PER_MSEC; }
static inline int ktime_compare(ktime_t a, ktime_t b) { return a < b ? -1 : a > b; }
static inline bool ktime_before(ktime_t a, ktime_t b) { return a < b; }
static inline bool ktime_after(ktime_t a, ktime_t b) { return a > b; }

/* Timers and the tick */
static const bool tick_nohz_enabled __maybe_unused = true;
/* Counted by replay; outside of select the timers are not known. */
static inline ktime_t tick_nohz_get_sleep_length(ktime_t *delta_next)
{
	int64_t next_event_ns = IDLEWISE_FAR_AWAY_NS, sleep_length_ns = IDLEWISE_FAR_AWAY_NS;
	if (likely(idlewise_now.context))
		sleep_length_ns = idlewise_sleep_length_ns(idlewise_now.context, &next_event_ns);
	*delta_next = next_event_ns;
	return sleep_length_ns;
}
static inline ktime_t tick_nohz_get_next_hrtimer(void) { return idlewise_now.next_hrtimer_ns; }
static inline bool tick_nohz_tick_stopped(void) { return idlewise_now.tick_stopped; }
static inline bool tick_nohz_tick_stopped_cpu(int cpu) { return idlewise_now.tick_stopped; }
/* True once after a stay in which the tick's handler ran. */
static inline bool tick_nohz_idle_got_tick(void)
{
	bool got_tick = idlewise_now.got_tick;
	idlewise_now.got_tick = false;
	return got_tick;
}
static inline unsigned long tick_nohz_get_idle_calls(void) { return idlewise_now.idle_calls; }
static inline unsigned long tick_nohz_get_idle_calls_cpu(int cpu)
{
	return idlewise_now.idle_calls;
}

/* CPUs and their data */
#define NR_CPUS 1
#define nr_cpu_ids 1
#define DECLARE_PER_CPU(type, name) extern __typeof__(type) name
#define DEFINE_PER_CPU(type, name) __typeof__(type) name
#define DEFINE_PER_CPU_ALIGNED(type, name) DEFINE_PER_CPU(type, name)
#define DEFINE_PER_CPU_SHARED_ALIGNED(type, name) DEFINE_PER_CPU(type, name)
#define this_cpu_ptr(pointer) (pointer)
#define raw_cpu_ptr(pointer) (pointer)
#define per_cpu_ptr(pointer, cpu) ((void)(cpu), (pointer))
#define per_cpu(variable, cpu) (*((void)(cpu), &(variable)))
#define this_cpu_read(variable) (variable)
#define this_cpu_write(variable, value) ((variable) = (value))
#define this_cpu_inc(variable) ((variable)++)
#define this_cpu_add(variable, value) ((variable) += (value))
#define for_each_possible_cpu(cpu) for ((cpu) = 0; (cpu) < 1; (cpu)++)
#define for_each_online_cpu(cpu) for_each_possible_cpu(cpu)
#define smp_processor_id() 0
#define raw_smp_processor_id() 0
struct cpumask {
	unsigned long bits[1];
};
typedef struct cpumask cpumask_t;
typedef struct cpumask cpumask_var_t[1];
static const struct cpumask idlewise_cpus __maybe_unused = { { 1 } };
#define cpu_online_mask (&idlewise_cpus)
#define cpu_possible_mask (&idlewise_cpus)
#define cpumask_first(mask) ((mask)->bits[0] & 1 ? 0U : 1U)
#define cpumask_test_cpu(cpu, mask) ((cpu) == 0 && ((mask)->bits[0] & 1))
#define for_each_cpu(cpu, mask) for ((cpu) = 0; (cpu) < 1 && ((mask)->bits[0] & 1); (cpu)++)
#define for_each_cpu_and(cpu, a, b)                                                                \
	for ((cpu) = 0; (cpu) < 1 && ((a)->bits[0] & (b)->bits[0] & 1); (cpu)++)
#define GFP_KERNEL 0
#define alloc_cpumask_var(mask, flags) ((*(mask))->bits[0] = 0, true)
#define free_cpumask_var(mask) ((void)(mask))

/* Static keys are variables. */
struct static_key_false {
	bool is_enabled;
};
#define DECLARE_STATIC_KEY_FALSE(name) extern struct static_key_false name
#define DEFINE_STATIC_KEY_FALSE(name) struct static_key_false name
#define static_branch_enable(key) ((void)((key)->is_enabled = true))
#define static_branch_disable(key) ((void)((key)->is_enabled = false))
#define static_branch_likely(key) likely((key)->is_enabled)
#define static_branch_unlikely(key) unlikely((key)->is_enabled)

/* Floating point: allowed between begin and end only, which do not nest. */
static inline bool may_use_simd(void) { return true; }
static inline bool irq_fpu_usable(void) { return true; }
static inline void kernel_fpu_begin(void)
{
	BUG_ON(idlewise_now.is_in_fpu_section);
	idlewise_now.is_in_fpu_section = true;
}
static inline void kernel_fpu_end(void)
{
	BUG_ON(!idlewise_now.is_in_fpu_section);
	idlewise_now.is_in_fpu_section = false;
}

/* Features of the processor: none, so that a replay is the same on every machine. */
#define X86_VENDOR_INTEL 0
#define X86_VENDOR_AMD 2
#define X86_VENDOR_UNKNOWN 0xff
#define X86_FEATURE_XMM2 0
#define X86_FEATURE_AVX 1
#define X86_FEATURE_AVX2 2
#define X86_FEATURE_FMA 3
#define X86_FEATURE_AVX512F 4
struct cpuinfo_x86 {
	u8 x86_vendor;
	u8 x86;
	u8 x86_model;
};
static const struct cpuinfo_x86 boot_cpu_data __maybe_unused = { X86_VENDOR_UNKNOWN, 0, 0 };
#define boot_cpu_has(feature) ((void)(feature), false)
#define cpu_feature_enabled(feature) boot_cpu_has(feature)
#define static_cpu_has(feature) boot_cpu_has(feature)

/* The scheduler: replay knows no tasks, so nobody waits for I/O and no CPU was busy. */
static inline unsigned int nr_iowait_cpu(int cpu) { return idlewise_now.iowait_count; }
/* Logs have no interrupts that arrived while the CPU was busy. */
static inline unsigned long kstat_cpu_irqs_sum(unsigned int cpu) { return 0; }
#if IDLEWISE_HAS_CPU_UTIL
static inline unsigned long sched_cpu_util(int cpu) { return 0; }
static inline unsigned long arch_scale_cpu_capacity(int cpu) { return 1024; }
#endif
static inline bool need_resched(void) { return false; }

/* cpuidle */
#define CPUIDLE_STATE_MAX IDLEWISE_STATE_COUNT_MAX
#define CPUIDLE_NAME_LEN 16
#define CPUIDLE_DESC_LEN 32
#define CPUIDLE_FLAG_NONE 0
#define CPUIDLE_FLAG_POLLING BIT(0)
#define CPUIDLE_FLAG_COUPLED BIT(1)
#define CPUIDLE_FLAG_TIMER_STOP BIT(2)
#define CPUIDLE_FLAG_UNUSABLE BIT(3)
#define CPUIDLE_FLAG_OFF BIT(4)
#define CPUIDLE_FLAG_TLB_FLUSHED BIT(5)
#define CPUIDLE_FLAG_RCU_IDLE BIT(6)
/* `disable` is replay's; the other fields stay 0. */
struct cpuidle_state_usage {
	unsigned long long disable;
	unsigned long long usage;
	u64 time_ns;
	unsigned long long above;
	unsigned long long below;
	unsigned long long rejected;
};
struct cpuidle_state {
	char name[CPUIDLE_NAME_LEN];
	char desc[CPUIDLE_DESC_LEN];
	s64 exit_latency_ns;
	s64 target_residency_ns;
	unsigned int flags;
	unsigned int exit_latency;
	int power_usage;
	unsigned int target_residency;
};
struct cpuidle_device {
	unsigned int registered : 1;
	unsigned int enabled : 1;
	unsigned int poll_time_limit : 1;
	unsigned int cpu;
	ktime_t next_hrtimer;
	int last_state_idx;
	u64 last_residency_ns;
	u64 poll_limit_ns;
	u64 forced_idle_latency_limit_ns;
	struct cpuidle_state_usage states_usage[CPUIDLE_STATE_MAX];
};
struct cpuidle_driver {
	const char *name;
	struct cpuidle_state states[CPUIDLE_STATE_MAX];
	int state_count;
	int safe_state_index;
	const char *governor;
};
struct cpuidle_governor {
	char name[CPUIDLE_NAME_LEN];
	unsigned int rating;
	int (*enable)(struct cpuidle_driver *drv, struct cpuidle_device *dev);
	void (*disable)(struct cpuidle_driver *drv, struct cpuidle_device *dev);
	int (*select)(struct cpuidle_driver *drv, struct cpuidle_device *dev, bool *stop_tick);
	void (*reflect)(struct cpuidle_device *dev, int index);
};
__attribute__((visibility("hidden"))) int cpuidle_register_governor(struct cpuidle_governor *gov);
static inline s64 cpuidle_governor_latency_req(unsigned int cpu)
{
	return idlewise_now.latency_limit_ns;
}

/* Which of the file's governors is the one, and the machine and CPU that it is told: shim.c. */
extern __attribute__((visibility("hidden"))) struct cpuidle_governor *idlewise_registered;
extern __attribute__((visibility("hidden"))) struct cpuidle_driver idlewise_driver;
extern __attribute__((visibility("hidden"))) struct cpuidle_device idlewise_cpu;

/* The driver: the machine's, for every CPU. */
static inline struct cpuidle_driver *cpuidle_get_cpu_driver(struct cpuidle_device *dev)
{
	return &idlewise_driver;
}
static inline struct cpuidle_driver *cpuidle_get_driver(void) { return &idlewise_driver; }

/* Modules: the one that registers the governor is called when it is loaded. */
#define idlewise_initcall(fn)                                                                      \
	__attribute__((visibility("hidden"))) int idlewise_governor_init(void) { return fn(); }
#define postcore_initcall(fn) idlewise_initcall(fn)
#define core_initcall(fn) idlewise_initcall(fn)
#define device_initcall(fn) idlewise_initcall(fn)
#define late_initcall(fn) idlewise_initcall(fn)
#define module_init(fn) idlewise_initcall(fn)
#define module_exit(fn) void (*const idlewise_governor_exit)(void) __maybe_unused = fn
#define _NOTHING(unique) _Static_assert(1, "")
#define module_param(name, type, perm) _NOTHING()
#define module_param_named(name, value, type, perm) _NOTHING()
#define MODULE_PARM_DESC(name, text) _NOTHING()
#define MODULE_LICENSE(text) _NOTHING()
#define MODULE_AUTHOR(text) _NOTHING()
#define MODULE_DESCRIPTION(text) _NOTHING()
#define MODULE_VERSION(text) _NOTHING()
#define EXPORT_SYMBOL(name) _NOTHING()
#define EXPORT_SYMBOL_GPL(name) _NOTHING()
#define THIS_MODULE NULL

/* Messages and traces go nowhere. */
#define pr_err(...) ((void)0)
#define pr_warn(...) ((void)0)
#define pr_info(...) ((void)0)
#define pr_debug(...) ((void)0)
#define printk(...) ((void)0)
#define trace_printk(...) ((void)0)
#define trace_guest_halt_poll_ns_grow(new_ns, old_ns) ((void)(new_ns), (void)(old_ns))
#define trace_guest_halt_poll_ns_shrink(new_ns, old_ns) ((void)(new_ns), (void)(old_ns))

/* Files in sysfs: none can be made, and nobody reads or writes a governor's. */
struct attribute {
	const char *name;
	unsigned short mode;
};
struct attribute_group {
	const char *name;
	struct attribute **attrs;
};
struct kobject {
	const char *name;
};
struct kobj_attribute {
	struct attribute attr;
	ssize_t (*show)(struct kobject *kobj, struct kobj_attribute *attr, char *buf);
	ssize_t (*store)(struct kobject *kobj, struct kobj_attribute *attr, const char *buf,
			 size_t count);
};
struct device {
	struct kobject kobj;
};
struct bus_type {
	const char *name;
};
static const struct bus_type cpu_subsys __maybe_unused = { "cpu" };
#define __ATTR(name_, mode_, show_, store_)                                                        \
	{                                                                                        \
		.attr = { .name = #name_, .mode = (mode_) }, .show = (show_), .store = (store_)  \
	}
#define __ATTR_RO(name) __ATTR(name, 0444, name##_show, NULL)
#define __ATTR_WO(name) __ATTR(name, 0200, NULL, name##_store)
#define __ATTR_RW(name) __ATTR(name, 0644, name##_show, name##_store)
static inline struct device *bus_get_dev_root(const struct bus_type *bus) { return NULL; }
static inline void put_device(struct device *dev) {}
static inline struct kobject *kobject_create_and_add(const char *name, struct kobject *parent)
{
	return NULL;
}
static inline void kobject_put(struct kobject *kobj) {}
static inline int sysfs_create_group(struct kobject *kobj, const struct attribute_group *group)
{
	return -ENODEV;
}
static inline void sysfs_remove_group(struct kobject *kobj, const struct attribute_group *group) {}
static inline int sysfs_emit(char *buf, const char *format, ...) { return 0; }
static inline int sysfs_emit_at(char *buf, int at, const char *format, ...) { return 0; }
static inline bool sysfs_streq(const char *a, const char *b) { return !strcmp(a, b); }
static inline int kstrtouint(const char *text, unsigned int base, unsigned int *value)
{
	return -EINVAL;
}
static inline int cpulist_parse(const char *text, struct cpumask *mask) { return -EINVAL; }

/* Guests: haltpoll wants to be one. */
static inline bool kvm_para_available(void) { return true; }
static inline bool kvm_para_has_hint(unsigned int feature) { return true; }

#endif
