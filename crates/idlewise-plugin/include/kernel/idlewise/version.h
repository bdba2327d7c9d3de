/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which kernel's governors these headers are for: the compiler is told IDLEWISE_KERNEL, and
 * everything that differs between kernels asks for it here.
 */
#ifndef IDLEWISE_VERSION_H
#define IDLEWISE_VERSION_H

#define KERNEL_VERSION(major, minor, patch) (((major) << 16) + ((minor) << 8) + (patch))
#define LINUX_VERSION_CODE IDLEWISE_KERNEL

/* Governors share gov.h, and read the timers last, since 6.6. */
#define IDLEWISE_HAS_GOV_H (LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0))
/* teo looked at how busy its CPU is from 6.3 to 6.10. */
#define IDLEWISE_HAS_CPU_UTIL                                                                      \
	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0) &&                                        \
	 LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0))
/* menu asked for tasks that wait for I/O until 6.11. */
#define IDLEWISE_HAS_IOWAIT (LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0))

#endif
