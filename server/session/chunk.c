// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Counted chunks. See chunk.h.

#include "server/session/chunk.h"

#include <stdlib.h>

#include "server/failover/worker.h"
#include "server/loop/shared_fd.h"
#include "server/session/daemon.h"

static void on_released(
	void *context, struct worker *keeper, const struct wire_reply *reply, struct packet *packet)
{
	(void)keeper;
	(void)reply;
	(void)packet;
	daemon_reclaimed(context);
}

static void release(struct daemon *daemon, uint64_t handle, uint32_t keeper)
{
	struct wire_message message = {.type = WIRE_RELEASE_CHUNK, .chunk = {.handle = handle}};

	/* The memory of an earlier keeper went with it. */
	if (!daemon->keeper || daemon->keeper_number != keeper || daemon->keeper->state == WORKER_CONDEMNED)
		daemon_reclaimed(daemon);
	else
		worker_request(daemon->keeper, &message, NULL, 0, on_released, daemon);
}

struct chunk *chunk_new(struct daemon *daemon, uint64_t handle, int fd)
{
	struct shared_fd *shared = shared_fd_new(fd);
	struct chunk *chunk = shared ? malloc(sizeof(*chunk)) : NULL;

	if (!chunk) {
		shared_fd_unref(shared);
		daemon->reclaiming++;
		release(daemon, handle, daemon->keeper_number);
		return NULL;
	}
	*chunk = (struct chunk){
		.daemon = daemon, .refs = 1, .handle = handle, .keeper = daemon->keeper_number, .fd = shared};
	return chunk;
}

struct chunk *chunk_ref(struct chunk *chunk)
{
	chunk->refs++;
	return chunk;
}

void chunk_doom(struct chunk *chunk)
{
	if (!chunk->doomed)
		chunk->daemon->reclaiming++;
	chunk->doomed = true;
}

struct chunk *chunk_unref(struct chunk *chunk)
{
	if (!chunk || --chunk->refs)
		return NULL;
	chunk_doom(chunk);
	shared_fd_unref(chunk->fd);
	release(chunk->daemon, chunk->handle, chunk->keeper);
	free(chunk);
	return NULL;
}
