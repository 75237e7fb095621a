// See export.h.

#include "server/session/export.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/handout.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"
#include "server/session/session.h"

#define LOOK_MS 1000u

struct offer {
	TAILQ_ENTRY(offer) link;
	struct exports *exports;
	struct chunk *chunk;
	struct shared_fd *file;
	uid_t uid;   /* whose programs may import the chunk */
	uid_t owner; /* for whom the chunk counts */
	/* limit: memory_limit or limit of pinned memory of the program that exported the chunk; 0:
	 * none */
	uint64_t bytes, limit;
	bool unheld; /* the last reference is this one's */
};

static uint64_t unheld_of(const struct exports *exports, uid_t owner, bool is_host)
{
	const struct offer *offer;
	uint64_t bytes = 0;

	TAILQ_FOREACH (offer, &exports->all, link)
		bytes += offer->unheld && offer->owner == owner && chunk_is_host(offer->chunk) == is_host
				 ? offer->bytes
				 : 0;
	return bytes;
}

/* True if the chunk, unheld, would exceed the limit of unheld memory. */
static bool is_over(const struct chunk *chunk)
{
	const struct offer *offer = chunk->offer;
	uint64_t others = unheld_of(offer->exports, offer->owner, chunk_is_host(chunk));

	return offer->limit && (others > offer->limit || offer->bytes > offer->limit - others);
}

/* What another device has mapped counts until it is unmapped there: this daemon cannot free it. */
static bool is_wanted(const struct chunk *chunk)
{
	return (chunk->lent != CHUNK_NOT_LENT || !is_over(chunk)) && handout_is_open(chunk->offer->file);
}

/* The latest are at the end. */
static void take(struct chunk *chunk)
{
	struct offer *offer = chunk->offer;
	struct exports *exports = offer->exports;

	offer->unheld = true;
	TAILQ_REMOVE(&exports->all, offer, link);
	TAILQ_INSERT_TAIL(&exports->all, offer, link);
	if (!timer_running(exports->timer))
		timer_start(exports->timer, LOOK_MS);
}

static void end(struct chunk *chunk)
{
	struct offer *offer = chunk->offer;

	TAILQ_REMOVE(&offer->exports->all, offer, link);
	shared_fd_unref(offer->file);
	free(offer);
	chunk->offer = NULL;
	holdings_note_sharing(chunk);
}

static const struct chunk_exported rules = {is_wanted, take, end};

static void release(struct offer *offer)
{
	struct chunk *chunk = offer->chunk;

	end(chunk);
	chunk_unref(chunk);
}

/* Releases what no process has open any more. Return: true if anything is unheld still */
static bool look(struct exports *exports)
{
	struct offer *offer, *next;
	bool is_any = false;

	for (offer = TAILQ_FIRST(&exports->all); offer; offer = next) {
		next = TAILQ_NEXT(offer, link);
		if (offer->unheld && !handout_is_open(offer->file))
			release(offer);
		else
			is_any |= offer->unheld;
	}
	return is_any;
}

static void on_timer(void *context)
{
	struct exports *exports = context;

	if (look(exports))
		timer_start(exports->timer, LOOK_MS);
}

void exports_init(struct exports *exports, struct uv_loop_s *loop)
{
	TAILQ_INIT(&exports->all);
	exports->timer = timer_new(loop, on_timer, exports);
}

void exports_deinit(struct exports *exports)
{
	struct offer *offer, *next;

	for (offer = TAILQ_FIRST(&exports->all); offer; offer = next) {
		next = TAILQ_NEXT(offer, link);
		if (offer->unheld)
			release(offer);
	}
	exports->timer = timer_free(exports->timer);
}

/* Nobody can write to the file; programs of other users than the service's cannot open it once
 * more. */
static struct shared_fd *make_file(const struct chunk *chunk)
{
	struct wire_export content = {WIRE_EXPORT_MAGIC, {chunk->token[0], chunk->token[1]}};
	int fd = memfd_create("frmps-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 && write(fd, &content, sizeof(content)) == sizeof(content) && fchmod(fd, 0600) == 0 &&
		fcntl(fd, F_ADD_SEALS, WIRE_EXPORT_SEALS) == 0)
		return shared_fd_new(fd);
	if (fd >= 0)
		close(fd);
	return NULL;
}

struct shared_fd *exports_file(struct session *session, struct chunk *chunk, uint64_t bytes)
{
	struct offer *offer = chunk->offer;

	if (offer)
		return offer->file;
	offer = calloc(1, sizeof(*offer));
	if (!offer)
		return NULL;
	*offer = (struct offer){.exports = &session->daemon->exports,
		.chunk = chunk,
		.file = make_file(chunk),
		.uid = session->uid,
		.owner = session->owner,
		.bytes = bytes,
		.limit = chunk_is_host(chunk) ? session_pinned_limit(session) : session->terms.memory_limit};
	if (!offer->file) {
		free(offer);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&offer->exports->all, offer, link);
	chunk->offer = offer;
	chunk->exported = &rules;
	holdings_note_sharing(chunk);
	return offer->file;
}

/* Another life of the daemon does not know offers: the records of all that have the chunk say
 * whether it is lent. */
static void set_lent(struct chunk *chunk, enum chunk_lent lent)
{
	struct session *session;
	struct holding *entry;

	chunk->lent = lent;
	TAILQ_FOREACH (session, &chunk->daemon->sessions, link) {
		if (session->uid != chunk->offer->uid)
			continue;
		TAILQ_FOREACH (entry, &session->holdings.entries, link)
			if (entry->chunk == chunk && entry->record)
				holdings_save(&session->holdings, entry);
	}
}

CUresult exports_lend(
	struct session *session, struct chunk *chunk, uint64_t bytes, struct shared_fd **ret_file)
{
	struct shared_fd *file = chunk->offer ? chunk->offer->file : exports_file(session, chunk, bytes);
	struct shared_fd *opened = file ? shared_fd_new(handout_open(file)) : NULL;

	if (!opened)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* What was freed a moment ago may not count any more. */
	if (is_over(chunk))
		look(chunk->offer->exports);
	if (is_over(chunk)) {
		shared_fd_unref(opened);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_file = opened;
	if (chunk->lent == CHUNK_NOT_LENT)
		set_lent(chunk, CHUNK_LENT);
	return CUDA_SUCCESS;
}

/* Programs may have descriptors of the same file: then nobody knows whether a lease is among
 * them. */
bool exports_is_lent(struct chunk *chunk)
{
	if (chunk->lent == CHUNK_LENT && chunk->offer && !handout_is_open(chunk->offer->file))
		set_lent(chunk, CHUNK_NOT_LENT);
	return chunk->lent != CHUNK_NOT_LENT;
}

struct chunk *exports_find(const struct exports *exports, uid_t uid, const uint64_t token[2])
{
	const struct offer *offer;

	TAILQ_FOREACH (offer, &exports->all, link)
		if (offer->uid == uid && !offer->chunk->doomed && offer->chunk->token[0] == token[0] &&
			offer->chunk->token[1] == token[1])
			return offer->chunk;
	return NULL;
}

uint64_t exports_bytes_of(const struct chunk *chunk)
{
	return chunk->offer->bytes;
}

void exports_claim(struct chunk *chunk)
{
	if (!chunk->offer)
		return;
	chunk_unleave(chunk);
	if (chunk->offer->unheld) {
		chunk->offer->unheld = false;
		chunk_unref(chunk);
	}
}

void exports_leave(struct chunk *chunk)
{
	if (chunk && chunk->offer && !chunk->lease)
		end(chunk);
}

bool exports_release_one(struct exports *exports)
{
	struct offer *offer;

	TAILQ_FOREACH (offer, &exports->all, link)
		if (offer->unheld && !chunk_is_host(offer->chunk) && offer->chunk->lent == CHUNK_NOT_LENT) {
			release(offer);
			return true;
		}
	return false;
}

uint64_t exports_unheld_bytes(const struct exports *exports)
{
	const struct offer *offer;
	uint64_t bytes = 0;

	TAILQ_FOREACH (offer, &exports->all, link)
		bytes += offer->unheld && !chunk_is_host(offer->chunk) ? offer->bytes : 0;
	return bytes;
}

uint64_t exports_fds(const struct exports *exports, const uid_t *owner)
{
	const struct offer *offer;
	uint64_t count = 0;

	TAILQ_FOREACH (offer, &exports->all, link)
		if (!owner || offer->owner == *owner)
			count += offer->unheld ? 2 : 1;
	return count;
}
