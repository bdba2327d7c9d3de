// SPDX-License-Identifier: GPL-2.0
/* Round trips over two pipes between a task on CPU 0 and one on CPU 1: `pingpong COUNT`. */
#define _GNU_SOURCE
#include "load.h"

#include <sys/wait.h>

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 1000;
	int there[2], back[2];
	char byte = 0;

	if (pipe(there) || pipe(back))
		err(2, "pipe");
	pin(0);
	if (!fork()) {
		pin(1);
		while (count--)
			if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
				err(2, "echo");
		return 0;
	}
	while (count--)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			err(2, "round trip");
	wait(NULL);
	return 0;
}
