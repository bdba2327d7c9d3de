/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For a governor without a gov.h beside it, which would be found first. */
#ifndef IDLEWISE_GOV_H
#define IDLEWISE_GOV_H

#include <idlewise/kernel.h>

#if !IDLEWISE_HAS_GOV_H
#error idlewise: it includes gov.h, which came with Linux 6.6; pass --kernel 6.6 or newer
#endif

#define RESIDENCY_THRESHOLD_NS (15 * NSEC_PER_USEC)

#endif
