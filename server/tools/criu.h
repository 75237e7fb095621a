// Runs CRIU (Debian's package criu), which saves processes in files and makes them again. The
// program is the first `criu` of PATH. Blocking. Any thread.

#ifndef FRMPS_SERVER_TOOLS_CRIU_H
#define FRMPS_SERVER_TOOLS_CRIU_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Room for a reason, bytes. */
#define CRIU_TEXT 400u

/* A process's socket to the service. */
struct criu_socket {
	uint64_t inode; /* as it was when the process was saved */
	int fd;		/* restore: the socket that the process gets */
};

/**
 * Saves a process and its descendants, which are stopped (SIGSTOP) afterwards.
 * @folder: path of an existing folder, for CRIU's files
 * @ret_text: CRIU_TEXT bytes: on failure, a sentence; then nothing has changed for the processes
 * Return: 0 or -1
 */
int criu_dump(
	pid_t root, const char *folder, const struct criu_socket *sockets, size_t count, char *ret_text);

/** Makes the processes again, with the same numbers, stopped. Arguments and return: the same. */
int criu_restore(const char *folder, const struct criu_socket *sockets, size_t count, char *ret_text);

#endif
