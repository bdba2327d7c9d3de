/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef MEAN_LENGTH_H
#define MEAN_LENGTH_H

#include <linux/types.h>

struct mean_length {
	float log2_ns;
	u64 count;
};

/* Call these between kernel_fpu_begin() and kernel_fpu_end(). */
void mean_length_add(struct mean_length *mean, u64 length_ns);
u64 mean_length_ns(const struct mean_length *mean);

#endif
