// As whom an executor runs that executes what programs send in its own process (RUN_AS_PROGRAM):
// as the program itself. User and groups come from the kernel, for the program that connected. The
// user database may list groups that this program has given up, and does not know users of
// containers. Programs of one user with other groups get executors of their own, so nobody gets a
// group from a program that it shares with.

#ifndef FRMPS_SERVER_IDENTITY_H
#define FRMPS_SERVER_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ucred;

#define IDENTITY_GROUPS_MAX 64u

/* Where executors are not started as programs (RUN_AS_SERVICE, RUN_AS_USER) there are no groups,
 * and `gid` is 0. */
struct identity {
	uid_t uid;
	gid_t gid;
	uint32_t group_count; /* may be more than IDENTITY_GROUPS_MAX: then `groups` is empty */
	gid_t groups[IDENTITY_GROUPS_MAX];
};

/** Of the peer of a connected socket, at the moment when it connected. @credentials: what
 * SO_PEERCRED says */
void identity_of_peer(const struct ucred *credentials, int socket, struct identity *ret_identity);

/** Of this process. */
void identity_of_self(struct identity *ret_identity);

bool identity_equal(const struct identity *left, const struct identity *right);

/**
 * Takes the identity on for good, without any capability: a later exec gives none back.
 * Async-signal-safe, for a child of a process with threads: the child has only the one that called.
 * Return: 0 or -errno; the process must not go on then
 */
int identity_take(const struct identity *identity);

/* "Nobody": a group that no file of a user's has. */
#define IDENTITY_NO_GROUP 65534

/**
 * Makes all threads of this process a user's, in no group but IDENTITY_NO_GROUP, for good. What is
 * open stays open. A process of root loses its capabilities with it, unless the user is root.
 * Return: 0 or -errno; the process must not go on then, as it may be half of each
 */
int identity_become(uid_t uid);

#endif
