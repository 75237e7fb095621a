// Exported memory, which lives while a session has the memory or a process has the descriptor. The
// descriptor of a program is a file of the service that identifies the memory. When no session
// holds the memory any more, the daemon asks the kernel if that file is open anywhere:
//
//   exports_file ──► exported ──(last reference goes)──► open? ──no──► released
//                      ▲                              yes │   ▲
//                      └──────── exports_claim ◄────── unheld ┘
//                                (an import)          closed (checked each second), or
//                                                     needed for guarantees of others
//
// A file may be open in the daemon of another device, where programs of the user have imported the
// memory (daemon/lending.h).
//
// Unheld memory counts for the user who exported it, up to the memory_limit of that program, host
// memory up to its pinned_limit: more is released at once, except for memory that another device
// has: with so much, no more is lent. Unheld memory does not outlive the daemon. Daemon, loop
// thread only; belongs to the daemon.

#ifndef FRMPS_SERVER_SESSION_EXPORT_H
#define FRMPS_SERVER_SESSION_EXPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "protocol/cuda_abi.h"

struct chunk;
struct session;
struct shared_fd;
struct timer;
struct uv_loop_s;

struct exports {
	TAILQ_HEAD(export_list, offer) all;
	struct timer *timer; /* runs while something is unheld */
};

void exports_init(struct exports *exports, struct uv_loop_s *loop);
/** Releases unheld memory. No other exports are left. */
void exports_deinit(struct exports *exports);

/** The file that stands for memory of a session, made if there is none. Return: NULL without memory
 * or descriptors. */
struct shared_fd *exports_file(struct session *session, struct chunk *chunk, uint64_t bytes);

/**
 * Lends memory to the daemon of another device.
 * @session: that has the memory; NULL: it is unheld
 * @ret_file: for that daemon, which closes it when the memory is in use there no more
 * Return: CUDA_ERROR_OUT_OF_MEMORY: without memory or descriptors, or too much is unheld already
 */
CUresult exports_lend(
	struct session *session, struct chunk *chunk, uint64_t bytes, struct shared_fd **ret_file);

/** True if another device's daemon may have the memory. Asks the kernel; true as well while a
 * program has a descriptor of memory that was lent. @chunk: of a session */
bool exports_is_lent(struct chunk *chunk);

/** Exported memory of a user that has this token and may be about to become unheld; NULL: there is
 * none. */
struct chunk *exports_find(const struct exports *exports, uid_t uid, const uint64_t token[2]);
uint64_t exports_bytes_of(const struct chunk *chunk);
/** The memory was imported. @chunk: a reference of the new owner's; may be held already */
void exports_claim(struct chunk *chunk);

/** Another device's daemon has the memory from now on: here, no descriptor keeps it any more. NULL
 * is fine. */
void exports_leave(struct chunk *chunk);

/** Releases the device memory that has been unheld for longest. Return: whether there was any. */
bool exports_release_one(struct exports *exports);

/** Bytes of device memory that are unheld. */
uint64_t exports_unheld_bytes(const struct exports *exports);
/** Descriptors of files and of unheld memory. @owner: NULL: all users' */
uint64_t exports_fds(const struct exports *exports, const uid_t *owner);

#endif
