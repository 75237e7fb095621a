// Processes beside the daemon, for what may block for as long as a program likes: to close a
// descriptor that a program sent. The holder reaps them. Each has a number of seconds before a
// signal ends it; one that the kernel does not let go stays, and counts for as long. Daemon, loop
// thread only.

#ifndef FRMPS_SERVER_LOOP_ASIDE_H
#define FRMPS_SERVER_LOOP_ASIDE_H

#include <stdbool.h>
#include <sys/types.h>

#define ASIDES_MAX 128u

/* The processes of a kind. */
struct asides {
	const char *name; /* of each process, at most 15 characters */
	unsigned seconds;
	unsigned most; /* at a time, at most ASIDES_MAX */
	unsigned most_of_user;
	struct {
		pid_t pid; /* 0: none. It may have ended */
		uid_t user;
	} at[ASIDES_MAX];
};

/* The work of a process, which has no other descriptors than these. Nothing may be allocated
 * there. */
typedef void aside_fn(const int *fds);

/**
 * Starts a process.
 * @user: for whom it is; @fds: `count`, in ascending order, at least one; they stay the caller's
 * Return: true if the process runs; false: too many, or no process
 */
bool aside_start(struct asides *asides, uid_t user, const int *fds, unsigned count, aside_fn *run);

#endif
