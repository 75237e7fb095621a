// See adoption.h.

#include "server/adopt/adoption.h"

#include <stdlib.h>
#include <string.h>

#include "server/grow.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/records.h"
#include "server/worker/worker.h"

/* The object that was made of a descriptor: a reference, since the record that named the object
 * first may be unusable. */
struct made {
	struct shared_fd *fd;
	struct chunk *chunk;
};

struct doomed {
	struct kept_doomed kept;
	const struct record *record;
	bool taken; /* the object has an owner, or the keeper's request is repeated */
};

struct shared_fd *inventory_fd(struct inventory *inventory, uint32_t key)
{
	struct shared_fd *shared;
	int fd;

	if (!key || key >= inventory->made_count)
		return NULL;
	if (inventory->made[key].fd)
		return shared_fd_ref(inventory->made[key].fd);
	fd = store_take(inventory->daemon->store, key);
	if (fd < 0)
		return NULL;
	shared = shared_fd_new(fd);
	/* The next life may have memory. */
	log_bug_on(!shared);
	shared->store = inventory->daemon->store;
	shared->key = key;
	inventory->made[key].fd = shared;
	return shared_fd_ref(shared);
}

static struct doomed *find_doomed(const struct inventory *inventory, const struct kept_chunk *chunk)
{
	for (size_t i = 0; i < inventory->doomed_count; i++)
		if (inventory->doomed[i].kept.chunk.handle == chunk->handle &&
			inventory->doomed[i].kept.chunk.keeper == chunk->keeper)
			return &inventory->doomed[i];
	return NULL;
}

/* A chunk whose content is in host memory. The token names the chunk. */
static struct chunk *find_empty(struct inventory *inventory, const struct kept_chunk *kept)
{
	for (uint32_t i = 0; i < inventory->empty_count; i++)
		if (!memcmp(inventory->empty[i]->token, kept->token, sizeof(kept->token)))
			return chunk_ref(inventory->empty[i]);
	log_bug_on(!grow(&inventory->empty, inventory->empty_count, &inventory->empty_room,
		sizeof(*inventory->empty)));
	inventory->empty[inventory->empty_count] = chunk_new_empty(inventory->daemon, kept->token);
	inventory->empty[inventory->empty_count]->place = kept->place;
	return chunk_ref(inventory->empty[inventory->empty_count++]);
}

struct chunk *inventory_chunk(struct inventory *inventory, const struct kept_chunk *kept, bool may_be_empty)
{
	struct doomed *doomed = find_doomed(inventory, kept);
	struct shared_fd *fd;
	struct chunk *chunk;

	if (!kept->fd && (kept->token[0] || kept->token[1]))
		return may_be_empty ? find_empty(inventory, kept) : NULL;
	if (!kept->fd || kept->fd >= inventory->made_count || (doomed && doomed->kept.release_id))
		return NULL;
	if (inventory->made[kept->fd].chunk)
		return chunk_ref(inventory->made[kept->fd].chunk);
	fd = inventory_fd(inventory, kept->fd);
	if (!fd)
		return NULL;
	chunk = chunk_adopt(inventory->daemon, kept, fd, inventory_fd(inventory, kept->lease));
	if (doomed) {
		doomed->taken = true;
		chunk->doomed = true;
		chunk->record = doomed->record;
		reclaim_begin(inventory->daemon);
	}
	inventory->made[kept->fd].chunk = chunk;
	return chunk_ref(chunk);
}

static void read_doomed(struct inventory *inventory)
{
	const struct record **records;

	inventory->doomed_count = store_list(inventory->daemon->store, RECORD_DOOMED, &records);
	inventory->doomed = calloc(inventory->doomed_count + 1, sizeof(*inventory->doomed));
	log_bug_on(!inventory->doomed);
	for (size_t i = 0; i < inventory->doomed_count; i++) {
		inventory->doomed[i].record = records[i];
		record_read(records[i], &inventory->doomed[i].kept, sizeof(struct kept_doomed));
	}
	free(records);
}

static void release_again(struct worker *keeper, void *context)
{
	const struct doomed *doomed = context;

	chunk_release(keeper->daemon, &doomed->kept.chunk, doomed->record);
}

void inventory_repeat(struct inventory *inventory, struct repetitions *list)
{
	struct daemon *daemon = inventory->daemon;

	for (size_t i = 0; i < inventory->doomed_count; i++) {
		struct doomed *doomed = &inventory->doomed[i];

		if (doomed->taken)
			continue;
		reclaim_begin(daemon);
		if (daemon->keeper && doomed->kept.release_id &&
			doomed->kept.chunk.keeper == daemon->keeper_number) {
			doomed->taken = true;
			repeat_later(list, daemon->keeper, doomed->kept.release_id, release_again, doomed);
		}
	}
}

/* Frees the inventory's references: objects that nobody else holds are released. */
static void let_go(struct inventory *inventory)
{
	for (uint32_t i = 0; i < inventory->made_count; i++) {
		inventory->made[i].chunk = chunk_unref(inventory->made[i].chunk);
		inventory->made[i].fd = shared_fd_unref(inventory->made[i].fd);
	}
	while (inventory->empty_count)
		chunk_unref(inventory->empty[--inventory->empty_count]);
}

void inventory_release(struct inventory *inventory)
{
	let_go(inventory);
	for (size_t i = 0; i < inventory->doomed_count; i++)
		if (!inventory->doomed[i].taken)
			chunk_release(inventory->daemon, &inventory->doomed[i].kept.chunk,
				inventory->doomed[i].record);
}

void inventory_init(struct inventory *inventory, struct daemon *daemon, uint32_t fd_count)
{
	*inventory = (struct inventory){.daemon = daemon, .made_count = fd_count};
	inventory->made = calloc((size_t)fd_count + 1, sizeof(*inventory->made));
	log_bug_on(!inventory->made);
	read_doomed(inventory);
}

void inventory_deinit(struct inventory *inventory)
{
	let_go(inventory);
	free(inventory->made);
	free(inventory->doomed);
	free(inventory->empty);
}
