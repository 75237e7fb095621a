// A process of the service's own program that sends one answer, through a pipe, and ends. A driver
// that crashes or hangs is an answer, too, and hurts nobody else.

#ifndef FRMPS_SERVER_THROWAWAY_H
#define FRMPS_SERVER_THROWAWAY_H

#include <stddef.h>

struct throwaway {
	const char *program;
	char *const *arguments;
	char *const *environment;
	int dump_fd; /* becomes HERITAGE_DUMP_FD; -1: none */
	unsigned patience_ms;
};

/**
 * Starts the process, and waits for its answer and its end. The process writes the whole answer to
 * HERITAGE_CONTROL_FD, and has no other descriptors but 0 to 2 and the dump. It ends with the
 * calling thread.
 * @ret_status: as of waitpid(), for a process without an answer
 * Return: 0, -ETIMEDOUT (killed), -EPROTO (ended without an answer), or -errno (not started)
 */
int throwaway_ask(const struct throwaway *asked, void *ret_answer, size_t size, int *ret_status);

#endif
