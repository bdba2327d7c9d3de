// SPDX-License-Identifier: MIT OR Apache-2.0
/* The floating-point part, which a kernel compiles with other flags than the rest. */
#include <linux/log2.h>
#include <linux/minmax.h>

#include "mean_length.h"

/* A stay weighs as much as all before it once this many were seen. */
#define WEIGHT_COUNT_MAX 8

/* Straight lines between the powers of two. */
static float log2_of(u64 n)
{
	int whole = ilog2(n);

	return (float)whole + ((float)n / (float)(1ULL << whole) - 1);
}

void mean_length_add(struct mean_length *mean, u64 length_ns)
{
	mean->count = min(mean->count + 1, WEIGHT_COUNT_MAX);
	mean->log2_ns += (log2_of(max(length_ns, 1)) - mean->log2_ns) / (float)mean->count;
}

u64 mean_length_ns(const struct mean_length *mean)
{
	int whole = (int)mean->log2_ns;

	return (u64)((1 + (mean->log2_ns - (float)whole)) * (float)(1ULL << whole));
}
