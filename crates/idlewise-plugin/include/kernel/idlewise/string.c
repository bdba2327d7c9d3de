/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The functions of <string.h> that a kernel governor may use, and that compilers call by themselves. Kernel
 * governors are linked without a C library, so any other name they use is missing.
 *
 * The empty statement in each loop keeps the compiler from turning the loop into a call of its own
 * function.
 */
#include <stddef.h>

#define KEEP_LOOP() __asm__ volatile("" ::: "memory")

void *memcpy(void *to, const void *from, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		((char *)to)[i] = ((const char *)from)[i];
		KEEP_LOOP();
	}
	return to;
}

void *memmove(void *to, const void *from, size_t count)
{
	if ((char *)to <= (const char *)from)
		return memcpy(to, from, count);
	for (size_t i = count; i-- > 0;) {
		((char *)to)[i] = ((const char *)from)[i];
		KEEP_LOOP();
	}
	return to;
}

void *memset(void *to, int byte, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		((char *)to)[i] = (char)byte;
		KEEP_LOOP();
	}
	return to;
}

int memcmp(const void *a, const void *b, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int difference = ((const unsigned char *)a)[i] - ((const unsigned char *)b)[i];
		if (difference)
			return difference;
		KEEP_LOOP();
	}
	return 0;
}

size_t strlen(const char *text)
{
	size_t length = 0;

	for (; text[length]; length++)
		KEEP_LOOP();
	return length;
}

int strncmp(const char *a, const char *b, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int difference = (unsigned char)a[i] - (unsigned char)b[i];
		if (difference || !a[i])
			return difference;
		KEEP_LOOP();
	}
	return 0;
}

int strcmp(const char *a, const char *b)
{
	return strncmp(a, b, (size_t)-1);
}
