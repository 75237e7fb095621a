// Counted chunks. See chunk.h.

#include "server/session/chunk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "protocol/wire.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/records.h"
#include "server/worker/worker.h"

/* A chunk that the keeper is to release. */
struct releasing {
	struct daemon *daemon;
	const struct record *record;
	uint64_t freed_by;
};

static void released(struct daemon *daemon, const struct record *record, uint64_t freed_by)
{
	store_drop(daemon->store, record);
	reclaim_released(daemon, freed_by);
}

static void on_released(
	void *context, struct worker *keeper, const struct wire_reply *reply, struct packet *packet)
{
	struct releasing *releasing = context;

	(void)keeper;
	(void)reply;
	(void)packet;
	released(releasing->daemon, releasing->record, releasing->freed_by);
	free(releasing);
}

static const struct record *record_doomed(
	struct daemon *daemon, const struct record *old, const struct kept_chunk *chunk, uint64_t release_id)
{
	const struct kept_doomed kept = {
		.chunk = {.handle = chunk->handle, .keeper = chunk->keeper}, .release_id = release_id};

	return store_put(daemon->store, old, RECORD_DOOMED,
		old ? record_key(old) : store_serial(daemon->store), &kept, sizeof(kept));
}

static void release(
	struct daemon *daemon, const struct kept_chunk *kept, const struct record *record, uint64_t freed_by)
{
	struct wire_message message = {.type = WIRE_RELEASE_CHUNK, .chunk = {.handle = kept->handle}};
	struct releasing *releasing;

	/* An earlier keeper's handle ended with that keeper, and means another chunk to the
	 * successor. The memory goes with the descriptors and mappings. */
	if (!daemon->keeper || daemon->keeper_number != kept->keeper ||
		daemon->keeper->state == WORKER_TERMINATING) {
		released(daemon, record, freed_by);
		return;
	}
	releasing = malloc(sizeof(*releasing));
	log_bug_on(!releasing);
	releasing->daemon = daemon;
	releasing->freed_by = freed_by;
	releasing->record = record_doomed(daemon, record, kept, daemon->keeper->next_request);
	worker_request(daemon->keeper, &message, NULL, 0, on_released, releasing);
}

void chunk_release(struct daemon *daemon, const struct kept_chunk *kept, const struct record *record)
{
	release(daemon, kept, record, 0);
}

void chunk_name(const struct chunk *chunk, struct kept_chunk *kept)
{
	*kept = (struct kept_chunk){0};
	if (chunk)
		*kept = (struct kept_chunk){.handle = chunk->handle,
			.keeper = chunk->keeper,
			.fd = chunk->fd ? chunk->fd->key : 0,
			.token = {chunk->token[0], chunk->token[1]},
			.kind = chunk->kind,
			.lease = chunk->lease ? chunk->lease->key : 0,
			.place = chunk->place,
			.offset = chunk->offset,
			.is_lent = chunk->lent != CHUNK_NOT_LENT,
			.is_programs = chunk->fd && chunk->fd->is_programs};
}

struct chunk *chunk_adopt(
	struct daemon *daemon, const struct kept_chunk *kept, struct shared_fd *fd, struct shared_fd *lease)
{
	struct chunk *chunk = malloc(sizeof(*chunk));

	/* The next life may have memory. */
	log_bug_on(!chunk);
	fd->is_programs |= kept->is_programs;
	*chunk = (struct chunk){.daemon = daemon,
		.kind = (enum chunk_kind)kept->kind,
		.refs = 1,
		.handle = kept->handle,
		.keeper = kept->keeper,
		.fd = fd,
		.lease = lease,
		.place = kept->place,
		.offset = kept->offset,
		.lent = kept->is_lent ? CHUNK_LENT_FOR_GOOD : CHUNK_NOT_LENT};
	memcpy(chunk->token, kept->token, sizeof(chunk->token));
	TAILQ_INIT(&chunk->owners);
	return chunk;
}

/* The daemon cannot use the chunk that the keeper has just made. */
static void give_back(struct daemon *daemon, uint64_t handle)
{
	reclaim_begin(daemon);
	chunk_release(daemon, &(struct kept_chunk){.handle = handle, .keeper = daemon->keeper_number}, NULL);
}

/* @fd: taken over. Return: NULL on failure */
static struct shared_fd *keep_fd(struct daemon *daemon, int fd)
{
	struct shared_fd *shared = shared_fd_new(fd);

	if (shared && shared_fd_deposit(shared, daemon->store))
		shared = shared_fd_unref(shared);
	return shared;
}

struct chunk *chunk_new_empty(struct daemon *daemon, const uint64_t token[2])
{
	struct chunk *chunk = malloc(sizeof(*chunk));

	log_bug_on(!chunk);
	*chunk = (struct chunk){.daemon = daemon, .refs = 1};
	memcpy(chunk->token, token, sizeof(chunk->token));
	TAILQ_INIT(&chunk->owners);
	return chunk;
}

_Static_assert(WIRE_TOKEN_DEVICES == PLACE_DEVICES, "a token names any device");

/* @fd: taken over */
static struct chunk *make(struct daemon *daemon, struct shared_fd *fd)
{
	uint64_t token[2];
	struct chunk *chunk;

	log_bug_on(getrandom(token, sizeof(token), 0) != sizeof(token));
	token[0] += daemon->heritage->number - WIRE_TOKEN_DEVICE(token);
	chunk = chunk_new_empty(daemon, token);
	chunk->fd = fd;
	return chunk;
}

struct chunk *chunk_new(struct daemon *daemon, uint64_t handle, int fd)
{
	struct shared_fd *shared = keep_fd(daemon, fd);
	struct chunk *chunk;

	if (!shared) {
		give_back(daemon, handle);
		return NULL;
	}
	chunk = make(daemon, shared);
	chunk->handle = handle;
	chunk->keeper = daemon->keeper_number;
	return chunk;
}

struct chunk *chunk_new_host(struct daemon *daemon, struct shared_fd *fd, uint64_t offset)
{
	struct chunk *chunk = make(daemon, shared_fd_ref(fd));

	chunk->kind = CHUNK_HOST;
	chunk->offset = offset;
	return chunk;
}

struct chunk *chunk_new_borrowed(
	struct daemon *daemon, enum chunk_kind kind, const uint64_t token[2], int fd, int lease)
{
	struct shared_fd *memory = keep_fd(daemon, fd), *file = keep_fd(daemon, lease);
	struct chunk *chunk;

	if (!memory || !file) {
		shared_fd_unref(memory);
		shared_fd_unref(file);
		return NULL;
	}
	chunk = chunk_new_empty(daemon, token);
	chunk->kind = kind;
	chunk->fd = memory;
	chunk->lease = file;
	return chunk;
}

struct chunk *chunk_split(struct chunk *chunk)
{
	const uint64_t nothing[2] = {0, 0};
	struct chunk *old = chunk_new_empty(chunk->daemon, nothing);

	old->handle = chunk->handle;
	old->keeper = chunk->keeper;
	old->fd = chunk->fd;
	old->doomed = chunk->doomed;
	old->record = chunk->record;
	chunk->handle = chunk->keeper = 0;
	chunk->fd = NULL;
	chunk->doomed = false;
	chunk->record = NULL;
	return old;
}

bool chunk_fill(struct chunk *chunk, uint64_t handle, int fd)
{
	chunk->fd = keep_fd(chunk->daemon, fd);
	if (!chunk->fd) {
		give_back(chunk->daemon, handle);
		return false;
	}
	chunk->handle = handle;
	chunk->keeper = chunk->daemon->keeper_number;
	return true;
}

struct chunk *chunk_ref(struct chunk *chunk)
{
	chunk->refs++;
	return chunk;
}

void chunk_doom(struct chunk *chunk)
{
	struct kept_chunk kept;

	if (chunk->doomed || !chunk->fd)
		return;
	/* Also a chunk that is still wanted: the next daemon does not know that. No keeper knows
	 * host memory. */
	chunk_name(chunk, &kept);
	if (!chunk->record && chunk->keeper)
		chunk->record = record_doomed(chunk->daemon, NULL, &kept, 0);
	if (chunk->offer && chunk->exported->is_wanted(chunk))
		return;
	reclaim_begin(chunk->daemon);
	chunk->doomed = true;
}

void chunk_unleave(struct chunk *chunk)
{
	if (chunk->doomed || !chunk->record)
		return;
	store_drop(chunk->daemon->store, chunk->record);
	chunk->record = NULL;
}

void chunk_leave(struct chunk *chunk)
{
	if (chunk && chunk->refs == 1)
		chunk_doom(chunk);
}

struct chunk *chunk_unref(struct chunk *chunk)
{
	struct kept_chunk kept;

	if (!chunk || --chunk->refs)
		return NULL;
	/* The content of an empty chunk is in files of its sessions, and ends with the last one. */
	if (!chunk->fd) {
		if (chunk->offer)
			chunk->exported->end(chunk);
		free(chunk);
		return NULL;
	}
	chunk_doom(chunk);
	if (!chunk->doomed) {
		chunk->refs = 1;
		chunk->exported->take(chunk);
		return NULL;
	}
	if (chunk->offer)
		chunk->exported->end(chunk);
	chunk_name(chunk, &kept);
	shared_fd_unref(chunk->fd);
	shared_fd_unref(chunk->lease);
	release(chunk->daemon, &kept, chunk->record, chunk->freed_by);
	free(chunk);
	return NULL;
}
