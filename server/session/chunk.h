// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// A piece of device memory that the keeper made for a session, counted by those who need it: the holding, the
// request that asks for it, unmappings that standbys have not answered yet. With the last reference the
// keeper lets it go. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_CHUNK_H
#define FRMPS_SERVER_SESSION_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct shared_fd;

struct chunk {
	struct daemon *daemon;
	unsigned refs;
	bool doomed;	 /* unmapped; counted in daemon->reclaiming */
	uint64_t handle; /* the keeper's */
	uint32_t keeper; /* which keeper of the daemon's life made it */
	struct shared_fd *fd;
};

/** Takes the descriptor over, on failure (NULL) too; the keeper's handle is then released at once. */
struct chunk *chunk_new(struct daemon *daemon, uint64_t handle, int fd);
struct chunk *chunk_ref(struct chunk *chunk);
/** Its owner gave it back: it will be released when the last reference goes. */
void chunk_doom(struct chunk *chunk);
/** NULL is fine. Return: NULL. */
struct chunk *chunk_unref(struct chunk *chunk);

#endif
