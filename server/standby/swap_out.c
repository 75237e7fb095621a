// Out: from HERE by LEAVES to AWAY, or back to HERE. See swap.c for states and rules.

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/request.h"
#include "server/session/session.h"
#include "server/standby/swap_inside.h"
#include "server/standby/warm.h"

/*
 * The budget
 */

uint64_t swap_most_bytes(const struct daemon *daemon)
{
	uint64_t bytes = daemon->config->swap_host_bytes;

	return bytes ? bytes : (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
}

static uint64_t bytes_of(const struct session *session)
{
	struct stat status;

	/* All files have the same size. */
	return session->swap_files[0] && fstat(session->swap_files[0]->fd, &status) == 0
		       ? (uint64_t)status.st_size
		       : 0;
}

uint64_t swap_all_bytes(const struct daemon *daemon)
{
	const struct session *session;
	uint64_t bytes = 0;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		bytes += bytes_of(session);
	return bytes;
}

/*
 * May the memory go?
 */

/* In the ring, or taken from there. */
bool swap_has_work(const struct session *session)
{
	bool has = word_acquire(&session->view.client->tail) != word_acquire(&session->view.server->head);
	uint32_t used = shm_view_used(&session->view);

	for (uint32_t slot = 0; !has && slot < used; slot++) {
		const struct shm_stream_state *state = &session->view.states[slot];

		has = word_acquire(&state->issued) != word_acquire(&state->journaled);
	}
	return has;
}

static bool is_shared(const struct session *session, const struct chunk *chunk)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &chunk->owners, owners_link)
		if (entry->holdings != &session->holdings)
			return true;
	return chunk->offer;
}

static const char *obstacle_of_memory(const struct session *session, const struct pieces *pieces)
{
	uint64_t most = swap_most_bytes(session->daemon), has = swap_all_bytes(session->daemon);

	if (!pieces->count)
		return "it has no device memory";
	if (session->holdings.backed_count)
		return "it has CUDA arrays, whose memory cannot move";
	for (uint32_t i = 0; i < pieces->count; i++) {
		if (is_shared(session, pieces->at[i].chunk))
			return "it shares device memory with other programs (exported or imported)";
		if (!piece_mapping(&pieces->at[i]))
			return "it has device memory that it has mapped nowhere (cuMemCreate)";
	}
	if (has > most || pieces->bytes > most - has)
		return "there would be more device memory in host memory than swap_host_bytes allows";
	return NULL;
}

static const char *obstacle(const struct session *session)
{
	if (session->memory != SESSION_MEMORY_HERE)
		return "it is suspended already, or comes back";
	if (session->move)
		return "it is being moved to another executor";
	if (!session_is_live(session) || session->attach.worker || !domain_serving(session->domain) ||
		session->domain->retiring || session->daemon->draining)
		return "it is not served now: it starts or ends, or its executor is being replaced; try "
		       "again";
	if (session->request)
		return "it waits for an answer of the service; try again";
	return NULL;
}

/*
 * The way
 */

static void unmap_standbys(struct session *session, const struct piece *piece)
{
	struct wire_message message;

	for (uint32_t i = 0; i < piece->count; i++) {
		if (piece->entries[i]->type != WIRE_MAP_MEMORY)
			continue;
		swap_unmap_message(session, piece->entries[i], &message);
		warm_drop(session, &message, piece->old);
	}
}

static void gone_away(struct swap *swap)
{
	struct session *session = swap->session;

	swap_empty_all(swap);
	for (uint32_t i = 0; i < swap->pieces.count; i++)
		unmap_standbys(session, &swap->pieces.at[i]);
	holdings_set_away(&session->holdings, true);
	session_set_memory(session, SESSION_MEMORY_AWAY);
	swap_release_all(swap);
	swap_round(swap);
	session->daemon->counters.sessions_suspended++;
	swap_note_moved(session, "is suspended, and its device memory in host memory");
	swap_say(swap, CUDA_SUCCESS, "");
}

void swap_stay(struct swap *swap, int32_t code, const char *text)
{
	char what[256];

	snprintf(what, sizeof(what), "is not suspended: %s", text);
	swap_note(swap->session, what);
	swap_be_here(swap->session);
	swap_say(swap, code, text);
	swap_drop(swap);
}

static void call_off(struct swap *swap, int32_t code, const char *text)
{
	struct session *session = swap->session;

	swap_stay(swap, code, text);
	if (session->request)
		request_advance(session->request);
}

static void copied(struct swap *swap)
{
	const struct session *session = swap->session;

	if (!session_is_paused(session) && swap_has_work(session))
		call_off(swap, CUDA_ERROR_NOT_READY, SWAP_HAS_WORK);
	else
		gone_away(swap);
}

static const struct swap_way way_out = {.into = false, .copied = copied, .failed = call_off};

/* Return: NULL without memory or descriptors */
static struct shared_fd *make_file(const struct session *session, uint64_t bytes)
{
	int fd = memfd_create("frmps-swap", MFD_CLOEXEC);
	struct shared_fd *file;

	if (fd >= 0 && (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)bytes) < 0)) {
		close(fd);
		return NULL;
	}
	file = shared_fd_new(fd);
	if (file && shared_fd_keep(file, session->daemon->store))
		file = shared_fd_unref(file);
	return file;
}

/* Return: whether there are all */
static bool make_files(struct session *session, uint64_t bytes)
{
	unsigned made = 0;

	while (made < KEPT_SWAP_FILES && (session->swap_files[made] = make_file(session, bytes)))
		made++;
	if (made == KEPT_SWAP_FILES)
		return true;
	while (made--)
		session->swap_files[made] = shared_fd_unref(session->swap_files[made]);
	return false;
}

const char *swap_begin(struct session *session, swap_done_fn *done, void *context)
{
	const char *text = obstacle(session);
	struct swap *swap;

	if (text)
		return text;
	swap = swap_new(session, swap_on_retry);
	swap->way = &way_out;
	text = obstacle_of_memory(session, &swap->pieces);
	if (!text && !make_files(session, swap->pieces.bytes))
		text = "the service has no memory or no file descriptors left";
	if (text) {
		swap_drop(swap);
		return text;
	}
	swap->done = done;
	swap->context = context;
	swap->refs++;
	session_set_memory(session, SESSION_MEMORY_LEAVES);
	if (swap->session)
		swap_copy(swap);
	swap_unref(swap);
	return NULL;
}
