// A session as the rest of the daemon handles it: references, and the state that the program sees.
// See session.h.

#include "server/session/session.h"

#include <stdio.h>
#include <stdlib.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/holder/store.h"
#include "server/incident/session_evidence.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/events.h"
#include "server/session/holdings.h"
#include "server/session/grant.h"
#include "server/session/partition.h"
#include "server/session/reclaim.h"
#include "server/session/shared_event.h"
#include "server/session/sink.h"
#include "server/session/upload.h"
#include "server/session/userlog.h"
#include "server/session/window.h"
#include "server/worker/worker.h"
#include "shm/doorbell.h"

static unsigned long long name(const struct session *session)
{
	return (unsigned long long)session->number;
}

struct session *session_ref(struct session *session)
{
	session->refs++;
	return session;
}

bool session_is_first_of_owner(const struct session *session)
{
	const struct session *other = TAILQ_FIRST(&session->daemon->sessions);

	while (other->owner != session->owner)
		other = TAILQ_NEXT(other, link);
	return other == session;
}

static void let_go(struct session *session)
{
	window_give(&session->domain->windows, session->window);
	window_give(&session->domain->windows, session->again.window);
	shared_event_release(&session->holdings, session->number);
	holdings_deinit(&session->holdings);
	uploads_drop_all(&session->uploads);
	sink_drop(session);
	shared_fd_unref(session->again.fd);
	chunk_unref(session->again.chunk);
	for (unsigned i = 0; i < KEPT_SWAP_FILES; i++)
		shared_fd_unref(session->swap_files[i]);
	store_drop(session->daemon->store, session->record);
	session_evidence_forget_losses(&session->evidence);
	session_evidence_forget_looks(&session->evidence);
	shm_view_unmap(&session->view);
	shared_fd_unref(session->client_fd);
	shared_fd_unref(session->server_fd);
	shared_fd_unref(session->doorbell_fd);
	timer_free(session->close_timer);
}

struct session *session_unref(struct session *session)
{
	struct daemon *daemon;
	struct domain *domain;
	bool opened, is_elsewhere;

	if (!session || --session->refs)
		return NULL;
	daemon = session->daemon;
	domain = session->domain;
	opened = session->opened;
	is_elsewhere = session_is_elsewhere(session);
	let_go(session);
	if (opened && !is_elsewhere)
		userlog_event(daemon, session->uid, USERLOG_session, LOG_LEVEL_INFO,
			"session closed: %llu (process %d, %s)", name(session), (int)session->pid,
			session->program);
	TAILQ_REMOVE(&daemon->sessions, session, link);
	TAILQ_REMOVE(&domain->sessions, session, domain_link);
	daemon->counters.requests += session->requests;
	free(session);
	daemon->session_count--;
	if (opened)
		reclaim_done(daemon, 1);
	domain_watch_idle(domain);
	due_domain(domain, DOMAIN_DUE_END);
	return NULL;
}

bool session_is_left_out(const struct session *session, const struct worker *worker)
{
	return session->mirroring == SESSION_LEFT_OUT && worker_is_immovable(worker, session->number);
}

/*
 * The state that the program sees
 */

bool session_is_live(const struct session *session)
{
	uint32_t state;

	if (!session->opened || session->state != SESSION_SERVED || session->is_detached)
		return false;
	state = word_acquire(&session->view.server->state);
	return state == SHM_SESSION_RUNNING || state == SHM_SESSION_HELD;
}

uint32_t session_policy(const struct session *session)
{
	if (!session->recovery_set)
		return SESSION_RECOVER_BY_POLICY;
	return session->recovery ? SESSION_RECOVER_BY_REPLAY : SESSION_RECOVER_BY_FAIL;
}

/* Executors read the share at each turn. */
static void set_share(struct session *session, uint32_t share)
{
	word_release(&session->view.server->share, share);
}

/* Makes a serving thread that sleeps read the share now. Not by the doorbell: the program has that
 * as well, and could make the daemon wait. */
static void wake_executor(struct worker *worker)
{
	struct wire_message ping = {.type = WIRE_PING};

	if (worker && !domain_worker_is_failing(worker))
		worker_request(worker, &ping, NULL, 0, worker_ignore_reply, NULL);
}

static bool has_partition(const struct session *session)
{
	return partition_units(session->daemon, session->partition);
}

/* True if the terms allow fewer than all multiprocessors. */
static bool is_capped(const struct terms *terms)
{
	return terms_lower(100, terms->sm_percent) != 100;
}

uint32_t session_sms(const struct session *session)
{
	return grant_sms(session->daemon, &session->terms, session->partition);
}

/* For executors; 0: all. */
static uint32_t share_of_sms(const struct session *session)
{
	const struct backend_device *device = &session->daemon->device;
	uint32_t sms = session_sms(session);

	if (sms == (uint32_t)device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT])
		return 0;
	return (sms << SHM_SHARE_SMS_SHIFT & SHM_SHARE_SMS_MASK) |
	       (is_capped(&session->terms) || has_partition(session) ? 0 : SHM_SHARE_LENT);
}

void session_tell_share(struct session *session)
{
	const struct terms *terms = &session->terms;
	uint32_t weight = terms->weight == SHM_SHARE_WEIGHT ? 0 : (uint32_t)terms->weight;

	if (session->state == SESSION_CLOSING || session->is_detached || !session->view.server)
		return;
	word_release(&session->view.server->partition, partition_units(session->daemon, session->partition));
	word_release(&session->view.server->rest, partition_rest(session->daemon));
	set_share(session, weight | share_of_sms(session) |
				   (terms->class == CONFIG_CLASS_OFFLINE ? SHM_SHARE_OFFLINE : 0) |
				   (session_is_paused(session) ? SHM_SHARE_PAUSED : 0) |
				   (session->memory != SESSION_MEMORY_HERE ? SHM_SHARE_AWAY : 0));
}

void session_set_terms(struct session *session)
{
	terms_find(&session->daemon->rules, &session->subject, &session->terms);
	terms_tighten(&session->terms, session->memory_wish, session->sm_wish, session->class_wish);
	session_tell_share(session);
}

void session_wake_all(struct daemon *daemon)
{
	struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (!TAILQ_EMPTY(&domain->sessions))
			wake_executor(domain->active);
}

void session_set_recovery(struct session *session, bool replay)
{
	session->recovery = replay;
	session->recovery_set = true;
	session_changed(session);
	userlog_event(session->daemon, session->uid, USERLOG_recovery, LOG_LEVEL_INFO,
		"session %llu (process %d, %s): recovery is %s from now on", name(session), (int)session->pid,
		session->program, replay ? "replay" : "fail");
}

uint64_t session_pinned_limit(const struct session *session)
{
	return session->terms.pinned_limit ? session->terms.pinned_limit : WINDOW_HOST_BYTES;
}

bool session_is_paused(const struct session *session)
{
	return word_relaxed(&session->view.server->share) & SHM_SHARE_PAUSED;
}

void session_pause(struct session *session, bool pause, bool ours)
{
	bool was_ours = session->pause_is_ours;

	/* A daemon that dies in this turn may have paused the session without a record of whose
	 * pause that is: then the session's own user may resume as well. */
	session->pause_is_ours = pause && (ours || (was_ours && session_is_paused(session)));
	if (session->pause_is_ours != was_ours)
		session_changed(session);
	if (!pause)
		session_set_checkpointed(session, false);
	if (session_is_paused(session) != pause) {
		/* The region preserves the share over the lives of daemons and executors. */
		set_share(session, word_relaxed(&session->view.server->share) ^ SHM_SHARE_PAUSED);
		userlog_event(session->daemon, session->uid, USERLOG_pause, LOG_LEVEL_INFO,
			"session %llu (process %d, %s) is %s", name(session), (int)session->pid,
			session->program, pause ? "paused" : "resumed");
	}
	/* Also the second time: a daemon may have died between the two. */
	wake_executor(session->domain->active);
	wake_executor(session->destination);
	session_read_next(session);
}

void session_set_checkpointed(struct session *session, bool checkpointed)
{
	if (session->checkpointed == checkpointed)
		return;
	session->checkpointed = checkpointed;
	session_changed(session);
}

void session_read_next(struct session *session)
{
	if (session->state != SESSION_SERVED || session->request || session->departure ||
		session_is_paused(session))
		connection_pause(session->connection);
	else
		connection_resume(session->connection);
}

void session_set_memory(struct session *session, enum session_memory memory)
{
	session->memory = memory;
	session_changed(session);
	session_tell_share(session);
	wake_executor(session->domain->active);
}

void session_hold(struct session *session)
{
	uint32_t running = SHM_SESSION_RUNNING;

	/* A final state that the executor has just written stays. */
	atomic_compare_exchange_strong(&session->view.server->state, &running, SHM_SESSION_HELD);
	wake_all(&session->view.server->wake);
}

void session_finish(struct session *session, uint32_t state, int32_t code, const char *reason)
{
	struct shm_server_header *header = session->view.server;
	const struct event_about about = events_about(session);
	uint32_t now;

	if (!header || session->is_detached)
		return;
	now = word_acquire(&header->state);
	if (now == SHM_SESSION_FAULTED || now == SHM_SESSION_CLOSED)
		return;
	snprintf(header->reason, sizeof(header->reason), "%s", reason);
	word_set(&header->error, (uint32_t)code);
	word_release(&header->state, state);
	wake_all(&header->wake);
	events_note(session->daemon, EVENT_terminated, LOG_LEVEL_INFO, &about,
		"session %llu (process %d, %s) ends with code %d: %s", name(session), (int)session->pid,
		session->program, (int)code, reason);
}
