// Files of the service that programs write to: regions of sessions, pinned memory. A program can
// keep a descriptor or a mapping of such a file, and so its pages, for any time. So a program gets
// an open file of its own. When the service needs the file no more, the daemon asks the kernel if
// the program's open file still exists:
//
//   handout_add ──► in use ──(last reference to the shared_fd goes)──► nobody has it open ──► pages freed, closed
//                                        └──► open: counts for its user until it is closed ──┘ (checked in turn)
//
// Each file costs a question to the kernel, so a check covers a few: files of a user when he
// requests more, files of all users in turn by a timer. However many files one user keeps open,
// other users wait for none of them.
//
// Only once nobody else has the file open are its pages freed by force: a process that may write to
// a file can hold its inode's lock for ever. A descriptor without rights (O_PATH) keeps no page
// then.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_HANDOUT_H
#define FRMPS_SERVER_SESSION_HANDOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct shared_fd;
struct timer;
struct uv_loop_s;

/* Files that the service needs no more, and that programs keep open. */
struct handouts {
	TAILQ_HEAD(, account) accounts; /* of users who have such files */
	uint64_t count;
	struct timer *timer; /* runs while there are any */
};

void handouts_init(struct handouts *handouts, struct uv_loop_s *loop);
/** Closes these files: nobody counts them any more. */
void handouts_deinit(struct handouts *handouts);

/**
 * Programs of a user get the file from now on. Twice is fine, and so is a file that is NULL,
 * or a program's own, which nobody counts when the service needs it no more. Return: 0 or -ENOMEM
 */
int handout_add(struct handouts *handouts, uid_t owner, struct shared_fd *file);

/** Another daemon of the service has the file, and counts it, from now on. Twice is fine, and so is
 * a file that is NULL. */
void handout_forget(struct shared_fd *file);

/** Opens the file once more for a program, for reading and writing. Return: a descriptor, the
 * caller's, or -errno. */
int handout_open(const struct shared_fd *file);

/** True if anybody has such an open file. */
bool handout_is_open(const struct shared_fd *file);

/** Checks for some files that programs of this user had open if they are closed now. With 16 or
 * fewer files, all are checked. */
void handouts_look(struct handouts *handouts, uid_t owner);

/** Bytes that programs of a user keep open although the service needs the files no more, as of the
 * latest check. */
uint64_t handouts_bytes(const struct handouts *handouts, uid_t owner);
/** The number of these files. @owner: NULL: all users' files */
uint64_t handouts_count(const struct handouts *handouts, const uid_t *owner);

#endif
