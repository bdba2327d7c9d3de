// SPDX-License-Identifier: GPL-2.0
/*
 * Kills a command with SIGKILL at one of its system calls:
 *   killer N COMMAND...
 * The N-th stop counts, from 1; entering a system call is one and leaving it is another. Only COMMAND's own calls
 * count, not those of processes that it starts, and they are not killed. Exit status: 0 if it was killed; 3 if it
 * ended before, and then the number of stops is printed on standard output. N=0 counts only.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long wanted, stop_count = 0;
	int status, signal = 0;
	pid_t child;

	if (argc < 3)
		return 2;
	wanted = atol(argv[1]);
	child = fork();
	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		/* Until the options are set. */
		raise(SIGSTOP);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
		return 2;
	/* A system call's stop is then told from a SIGTRAP, and the end of execve from both. */
	ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
	for (;;) {
		if (ptrace(PTRACE_SYSCALL, child, 0, signal) != 0 && errno == ESRCH)
			return 2;
		signal = 0;
		if (waitpid(child, &status, 0) != child)
			return 2;
		if (WIFEXITED(status) || WIFSIGNALED(status)) {
			printf("%ld\n", stop_count);
			return 3;
		}
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			if (++stop_count != wanted)
				continue;
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			return 0;
		}
		if (status >> 8 != (SIGTRAP | PTRACE_EVENT_EXEC << 8))
			signal = WSTOPSIG(status);
	}
}
