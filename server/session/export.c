// See export.h.

#include "server/session/export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/handout.h"
#include "server/session/session.h"

#define LOOK_MS 1000u

struct export
{
	TAILQ_ENTRY(export) link;
	struct exports *exports;
	struct chunk *chunk;
	struct shared_fd *file;
	uid_t uid;	       /* whose programs may import it */
	uid_t owner;	       /* for whom it counts */
	uint64_t bytes, limit; /* limit: of the program that exported it; 0: none */
	bool unheld;	       /* the last reference is this one's */
};

static uint64_t unheld_of(const struct exports *exports, uid_t owner)
{
	const struct export *export;
	uint64_t bytes = 0;

	TAILQ_FOREACH (export, &exports->all, link)
		bytes += export->unheld && export->owner == owner ? export->bytes : 0;
	return bytes;
}

static bool is_wanted(const struct chunk *chunk)
{
	const struct export *export = chunk->export;
	uint64_t others = unheld_of(export->exports, export->owner);

	if (export->limit && (others > export->limit || export->bytes > export->limit - others))
		return false;
	return handout_is_open(export->file);
}

/* The latest are at the end. */
static void take(struct chunk *chunk)
{
	struct export *export = chunk->export;
	struct exports *exports = export->exports;

	export->unheld = true;
	TAILQ_REMOVE(&exports->all, export, link);
	TAILQ_INSERT_TAIL(&exports->all, export, link);
	if (!timer_running(exports->timer))
		timer_start(exports->timer, LOOK_MS);
}

static void end(struct chunk *chunk)
{
	struct export *export = chunk->export;

	TAILQ_REMOVE(&export->exports->all, export, link);
	shared_fd_unref(export->file);
	free(export);
	chunk->export = NULL;
}

static const struct chunk_exported rules = {is_wanted, take, end};

static void release(struct export *export)
{
	struct chunk *chunk = export->chunk;

	end(chunk);
	chunk_unref(chunk);
}

static void on_timer(void *context)
{
	struct exports *exports = context;
	struct export *export, *next;
	bool is_any = false;

	for (export = TAILQ_FIRST(&exports->all); export; export = next) {
		next = TAILQ_NEXT(export, link);
		if (export->unheld && !handout_is_open(export->file))
			release(export);
		else
			is_any |= export->unheld;
	}
	if (is_any)
		timer_start(exports->timer, LOOK_MS);
}

void exports_init(struct exports *exports, struct uv_loop_s *loop)
{
	TAILQ_INIT(&exports->all);
	exports->timer = timer_new(loop, on_timer, exports);
	log_bug_on(!exports->timer);
}

void exports_deinit(struct exports *exports)
{
	while (exports_release_one(exports))
		continue;
	exports->timer = timer_free(exports->timer);
}

/* Nobody can write to it; a program of another user than the service's cannot open it once more. */
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
	struct export *export = chunk->export;

	if (export)
		return export->file;
	export = calloc(1, sizeof(*export));
	if (!export)
		return NULL;
	*export = (struct export){.exports = &session->daemon->exports,
		.chunk = chunk,
		.file = make_file(chunk),
		.uid = session->uid,
		.owner = session->owner,
		.bytes = bytes,
		.limit = session->terms.memory_limit};
	if (!export->file) {
		free(export);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&export->exports->all, export, link);
	chunk->export = export;
	chunk->exported = &rules;
	return export->file;
}

struct chunk *exports_find(const struct exports *exports, uid_t uid, const uint64_t token[2])
{
	const struct export *export;

	TAILQ_FOREACH (export, &exports->all, link)
		if (export->uid == uid && !export->chunk->doomed && export->chunk->token[0] == token[0] &&
			export->chunk->token[1] == token[1])
			return export->chunk;
	return NULL;
}

uint64_t exports_bytes_of(const struct chunk *chunk)
{
	return chunk->export->bytes;
}

void exports_claim(struct chunk *chunk)
{
	if (!chunk->export)
		return;
	chunk_unleave(chunk);
	if (chunk->export->unheld) {
		chunk->export->unheld = false;
		chunk_unref(chunk);
	}
}

bool exports_release_one(struct exports *exports)
{
	struct export *export;

	TAILQ_FOREACH (export, &exports->all, link)
		if (export->unheld) {
			release(export);
			return true;
		}
	return false;
}

uint64_t exports_unheld_bytes(const struct exports *exports)
{
	const struct export *export;
	uint64_t bytes = 0;

	TAILQ_FOREACH (export, &exports->all, link)
		bytes += export->unheld ? export->bytes : 0;
	return bytes;
}

uint64_t exports_fds(const struct exports *exports, const uid_t *owner)
{
	const struct export *export;
	uint64_t count = 0;

	TAILQ_FOREACH (export, &exports->all, link)
		if (!owner || export->owner == *owner)
			count += export->unheld ? 2 : 1;
	return count;
}
