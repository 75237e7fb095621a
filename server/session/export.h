// Exported memory, which lives as long as somebody has it or its descriptor. The descriptor
// that a program gets is a file of the service's that says which memory it stands for. When nobody
// holds the memory any more, the service asks the kernel whether somebody has that file open:
//
//   exports_file ──► exported ──(last reference goes)──► open? ──no──► released
//                      ▲                              yes │   ▲
//                      └──────── exports_claim ◄────── unheld ┘
//                                (an import)          closed (looked at each second), or
//                                                     needed for what is guaranteed to others
//
// What is unheld counts for the user who exported it, up to the memory_limit of that program, of
// host memory its pinned_limit: more is released at once. It does not outlive the daemon. Daemon,
// loop thread only; belongs to the daemon.

#ifndef FRMPS_SERVER_SESSION_EXPORT_H
#define FRMPS_SERVER_SESSION_EXPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct chunk;
struct offer;
struct session;
struct shared_fd;
struct timer;
struct uv_loop_s;

struct exports {
	TAILQ_HEAD(export_list, offer) all;
	struct timer *timer; /* runs while something is unheld */
};

void exports_init(struct exports *exports, struct uv_loop_s *loop);
/** Releases what is unheld. The others are gone. */
void exports_deinit(struct exports *exports);

/** The file that stands for memory of a session, made if there is none. Return: NULL without memory
 * or descriptors. */
struct shared_fd *exports_file(struct session *session, struct chunk *chunk, uint64_t bytes);

/** Exported memory of a user that a token proves the right to, which may be on its way to be
 * unheld; NULL: there is none. */
struct chunk *exports_find(const struct exports *exports, uid_t uid, const uint64_t token[2]);
uint64_t exports_bytes_of(const struct chunk *chunk);
/** It was imported. @chunk: a reference of its new owner's; may be held already */
void exports_claim(struct chunk *chunk);

/** Releases the device memory that has been unheld for longest. Return: whether there was any. */
bool exports_release_one(struct exports *exports);

/** Bytes of device memory that are unheld. */
uint64_t exports_unheld_bytes(const struct exports *exports);
/** Descriptors of files and of what is unheld. @owner: NULL: all users' */
uint64_t exports_fds(const struct exports *exports, const uid_t *owner);

#endif
