// SPDX-License-Identifier: GPL-2.0
/* Keeps a CPU busy, and lets QEMU run the others in between. */
int main(void)
{
	for (;;)
		__builtin_ia32_pause();
}
