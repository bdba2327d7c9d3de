/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The kernel whose governors are compiled. IDLEWISE_KERNEL is given to the compiler, and everything that
 * differs between kernels is decided here.
 */
#ifndef IDLEWISE_VERSION_H
#define IDLEWISE_VERSION_H

#define KERNEL_VERSION(major, minor, patch) (((major) << 16) + ((minor) << 8) + (patch))
#define LINUX_VERSION_CODE IDLEWISE_KERNEL

/* Since 6.6, governors share gov.h and read the timers last. */
#define IDLEWISE_HAS_GOV_H (LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0))
/* From 6.3 to 6.10, teo checked how busy its CPU is. */
#define IDLEWISE_HAS_CPU_UTIL                                                                      \
	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0) &&                                        \
	 LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0))

#endif
