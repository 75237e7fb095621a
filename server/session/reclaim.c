// See reclaim.h. Requests are numbered in their order: a retry covers the requests that waited when
// it began, each once, regardless of changes meanwhile.

#include "server/session/reclaim.h"

#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "server/grow.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/due.h"
#include "server/session/request.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

static void on_timer(void *context)
{
	due_daemon(context, DAEMON_DUE_MEMORY);
}

void reclaim_init(struct daemon *daemon)
{
	daemon->reclaim = (struct reclaim){.timer = timer_new(daemon->loop, on_timer, daemon),
		.limit = timer_new(daemon->loop, on_timer, daemon)};
	TAILQ_INIT(&daemon->reclaim.waiting);
}

void reclaim_deinit(struct daemon *daemon)
{
	daemon->reclaim.timer = timer_free(daemon->reclaim.timer);
	daemon->reclaim.limit = timer_free(daemon->reclaim.limit);
	free(daemon->reclaim.syncing);
	daemon->reclaim.syncing = NULL;
}

void reclaim_begin(struct daemon *daemon)
{
	daemon->reclaim.under_way++;
}

void reclaim_cancel(struct daemon *daemon)
{
	daemon->reclaim.under_way--;
}

void reclaim_note_freed(struct session *session, struct chunk *chunk)
{
	if (chunk->freed_by)
		return;
	chunk->freed_by = session->number;
	session->freeing++;
}

static void note_back(const struct daemon *daemon, uint64_t freed_by)
{
	struct session *session = freed_by ? daemon_find_session(daemon, freed_by) : NULL;

	if (session && session->freeing)
		session->freeing--;
}

static void await_sync(struct reclaim *reclaim, uint64_t freed_by)
{
	log_bug_on(!grow(&reclaim->syncing, reclaim->syncing_count, &reclaim->syncing_room,
		sizeof(*reclaim->syncing)));
	reclaim->syncing[reclaim->syncing_count++] = freed_by;
}

void reclaim_released(struct daemon *daemon, uint64_t freed_by)
{
	if (store_sync(daemon->store)) {
		await_sync(&daemon->reclaim, freed_by);
		return;
	}
	note_back(daemon, freed_by);
	reclaim_done(daemon, 1);
}

/* An earlier life of the daemon may have asked for some. */
void reclaim_synced(struct daemon *daemon, unsigned count)
{
	struct reclaim *reclaim = &daemon->reclaim;
	unsigned known = count < reclaim->syncing_count ? count : reclaim->syncing_count;

	for (unsigned i = 0; i < known; i++)
		note_back(daemon, reclaim->syncing[i]);
	reclaim->syncing_count -= known;
	if (known)
		memmove(reclaim->syncing, reclaim->syncing + known,
			reclaim->syncing_count * sizeof(*reclaim->syncing));
	reclaim_done(daemon, count);
}

void reclaim_done(struct daemon *daemon, unsigned count)
{
	log_bug_on(daemon->reclaim.under_way < count);
	daemon->reclaim.under_way -= count;
	due_daemon(daemon, DAEMON_DUE_MEMORY);
}

bool reclaim_is_short(const struct daemon *daemon)
{
	const struct request *request;

	TAILQ_FOREACH (request, &daemon->reclaim.waiting, link)
		if (request->refused_memory_us)
			return true;
	return false;
}

bool reclaim_expects(const struct daemon *daemon)
{
	const struct worker *worker;

	TAILQ_FOREACH (worker, &daemon->crew.workers, crew_link)
		if (worker->gives_back)
			return true;
	return daemon->reclaim.under_way;
}

void reclaim_await(struct request *request)
{
	struct reclaim *reclaim = &request->session->daemon->reclaim;

	request->turn = ++reclaim->latest;
	TAILQ_INSERT_TAIL(&reclaim->waiting, request, link);
}

void reclaim_await_for(struct request *request, uint64_t milliseconds)
{
	reclaim_await(request);
	reclaim_look_in(request->session->daemon, milliseconds);
}

void reclaim_look_in(struct daemon *daemon, uint64_t milliseconds)
{
	/* A running timer ends soon: then all requests are tried again. */
	if (!timer_running(daemon->reclaim.timer))
		timer_start(daemon->reclaim.timer, milliseconds);
}

bool reclaim_hope(struct request *request)
{
	struct daemon *daemon = request->session->daemon;
	uint64_t limit_ms = daemon->config->orphan_seconds * 1000 + SESSION_CLOSE_GRACE_MS, waited_ms;

	if (!request->refused_memory_us)
		request->refused_memory_us = timer_now_us();
	waited_ms = (timer_now_us() - request->refused_memory_us) / 1000;
	if (!reclaim_expects(daemon) || waited_ms >= limit_ms)
		return false;
	reclaim_await(request);
	/* A running timer is that of a request which waits for longer. */
	if (!timer_running(daemon->reclaim.limit))
		timer_start(daemon->reclaim.limit, limit_ms - waited_ms);
	return true;
}

bool reclaim_defer(struct request *request)
{
	const struct session *session = request->session;
	struct reclaim *reclaim = &session->daemon->reclaim;
	uint64_t now_us = timer_now_us(), until_us = session->freed_us + RECLAIM_FREED_MS * 1000;

	if (!session->freeing || now_us >= until_us)
		return false;
	reclaim_await(request);
	/* A running timer ends within that time as well: then all requests are tried again. */
	if (!timer_running(reclaim->timer))
		timer_start(reclaim->timer, (until_us - now_us) / 1000 + 1);
	return true;
}

void reclaim_forget(struct request *request)
{
	if (request->turn)
		TAILQ_REMOVE(&request->session->daemon->reclaim.waiting, request, link);
	request->turn = 0;
}

struct request *reclaim_first(const struct daemon *daemon, uint64_t latest)
{
	struct request *request = TAILQ_FIRST(&daemon->reclaim.waiting);

	return request && request->turn <= latest ? request : NULL;
}
