// Files of the service that programs write to: regions of sessions, pinned memory. A program can
// keep a descriptor or a mapping of one for as long as it likes, and its pages with it. So a
// program gets an open file of its own, and when the service needs the file no more it asks the
// kernel whether that one is still open:
//
//   handout_add ──► in use ──(last reference to the shared_fd goes)──► nobody has it open ──► pages freed, closed
//                                        └──► kept: counts for its user until it is closed ──┘ (looked at in turn)
//
// The kernel is asked about each file, so a look covers a few: of a user's own when he wants more,
// of all users' in turn by a timer. However many one user keeps, others wait for none of them.
//
// Only once nobody else has the file open are its pages freed by force: whoever may write to a file
// can hold its inode's lock for ever. A descriptor without rights (O_PATH) keeps no page then.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_HANDOUT_H
#define FRMPS_SERVER_SESSION_HANDOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct handout;
struct shared_fd;
struct timer;
struct uv_loop_s;

/* Those that are over and kept. */
struct handouts {
	TAILQ_HEAD(, account) accounts; /* of users who keep some */
	uint64_t count;
	struct timer *timer; /* runs while there are any */
};

void handouts_init(struct handouts *handouts, struct uv_loop_s *loop);
/** Closes what is kept: nobody counts it any more. */
void handouts_deinit(struct handouts *handouts);

/**
 * A user's programs get the file from now on. Twice is fine, and so is a file that is NULL.
 * Return: 0 or -ENOMEM
 */
int handout_add(struct handouts *handouts, uid_t owner, struct shared_fd *file);

/** An open file of its own for a program, for reading and writing. Return: a descriptor, the
 * caller's, or -errno. */
int handout_open(const struct shared_fd *file);

/** Whether somebody has such an open file. */
bool handout_is_open(const struct shared_fd *file);

/** Looks at some files that this user's programs have kept, whether they are closed now. With 16 or
 * fewer that is all of them. */
void handouts_look(struct handouts *handouts, uid_t owner);

/** Bytes that programs of a user keep although the service needs them no more, as far as has been
 * seen. */
uint64_t handouts_bytes(const struct handouts *handouts, uid_t owner);
/** How many files that is. @owner: NULL: all users' */
uint64_t handouts_count(const struct handouts *handouts, const uid_t *owner);

#endif
