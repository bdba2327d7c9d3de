// SPDX-License-Identifier: GPL-2.0
/* The kernel's teo with a patch, beside the one without. tests/images.sh makes the file. */
#define TEO_NAME "teo-patched"
#define TEO_FILE "patched-teo.c"
#include "idlewise_teo.c"
