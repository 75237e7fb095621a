// Sinks. See sink.h. A session is served before it has its sinks. The requests to the keeper are
// sent before the program can ask for memory, and the keeper answers in order, so executors know of
// the guard before they map the first memory. Without sinks (no memory for them, a backend that
// cannot examine them) the session goes on without a guard. The next keeper gets the requests that
// the last keeper had not answered, or that no keeper was there for: then executors get the guard
// when memory is mapped already.
//
// Sizes: near sinks are one granule. Far sinks are a power of two such that the sinks of 256
// sessions take about a thirty-second part of the device at most: 16 MiB on 140 GiB, 8 MiB on 80
// GiB, 4 MiB on 24 GiB and less.

#include "server/session/sink.h"

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/config/config.h"
#include "server/executor/guard.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/guarantee.h"
#include "server/session/reclaim.h"
#include "server/session/rooms.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

static void on_told(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct session *session = context;

	(void)packet;
	if (!reply)
		worker_note_unanswered(worker, session->number, WIRE_OPEN_GUARD);
	if (reply && reply->code && session->state != SESSION_CLOSING)
		userlog_event(session->daemon, session->uid, USERLOG_memory, LOG_LEVEL_WARNING,
			"session %llu has no guard in executor %d: code %d",
			(unsigned long long)session->number, (int)worker->pid, (int)reply->code);
	session_unref(session);
}

void sink_tell(struct session *session, struct worker *worker)
{
	const struct config *config = session->daemon->config;
	struct wire_message message = {.type = WIRE_OPEN_GUARD, .session = session->number};
	struct shared_fd *fds[2];

	if (!sink_is_there(session) || session_is_left_out(session, worker))
		return;
	message.open_guard = (struct wire_open_guard){.near_bytes = BACKEND_CHUNK_GRANULE,
		.far_bytes = sink_far_bytes(session->daemon->device.total_bytes),
		.reach = config->guard_bytes,
		.policy = config->guard == CONFIG_GUARD_ERROR ? GUARD_ERROR : GUARD_WARN,
		.interval_ms = (uint32_t)config->guard_interval_ms};
	for (int i = 0; i < 2; i++)
		fds[i] = session->sinks[i]->fd;
	worker_request(worker, &message, fds, 2, on_told, session_ref(session));
}

/* When both are there. */
static void tell_all(struct session *session)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &session->domain->workers, link)
		if (worker_knows_sessions(worker))
			sink_tell(session, worker);
	if (session->destination)
		sink_tell(session, session->destination);
}

/* The device has no memory for the sinks. Return: true if others make room (memory_policy =
 * swap) */
static bool awaits_room(struct session *session)
{
	struct daemon *daemon = session->daemon;
	uint64_t wait_ms;

	wait_ms = daemon->standby_room->make_room(
		session, sink_bytes(daemon->device.total_bytes), SWAP_PATIENT);
	session->sinks_short = wait_ms;
	if (wait_ms)
		reclaim_look_in(daemon, wait_ms);
	return wait_ms;
}

/* Takes over the sink that the keeper has made. */
static void take(struct session *session, int index, const struct wire_reply *reply, struct packet *packet)
{
	bool made = reply && !reply->code && reply->values.count;
	bool wanted = session->state != SESSION_CLOSING && made;

	session->sinks_asked--;
	if (made) {
		struct chunk *chunk =
			chunk_new(session->daemon, reply->values.at[0], packet_take_fd(packet, 0));

		if (chunk && wanted)
			session->sinks[index] = chunk;
		else
			chunk_unref(chunk);
	}
	if (wanted)
		session_keep(session);
	if (wanted)
		tell_all(session);
	else if (reply && reply->code &&
		 !(reply->code == CUDA_ERROR_OUT_OF_MEMORY && session_is_live(session) &&
			 awaits_room(session)))
		userlog_event(session->daemon, session->uid, USERLOG_memory, LOG_LEVEL_WARNING,
			"session %llu gets no guard: no device memory for its sinks (code %d)",
			(unsigned long long)session->number, (int)reply->code);
	session_unref(session);
}

static void on_near(
	void *context, struct worker *keeper, const struct wire_reply *reply, struct packet *packet)
{
	(void)keeper;
	take(context, 0, reply, packet);
}

static void on_far(
	void *context, struct worker *keeper, const struct wire_reply *reply, struct packet *packet)
{
	(void)keeper;
	take(context, 1, reply, packet);
}

static void ask(struct session *session, uint64_t bytes, worker_reply_fn *reply)
{
	struct wire_message message = {.type = WIRE_CREATE_CHUNK, .chunk = {.bytes = bytes}};

	session->sinks_asked++;
	worker_request(session->daemon->keeper, &message, NULL, 0, reply, session_ref(session));
}

void sink_request(struct session *session)
{
	struct daemon *daemon = session->daemon;

	if (daemon->config->guard == CONFIG_GUARD_OFF || sink_is_there(session) || !daemon->keeper ||
		daemon->keeper->state != WORKER_WARM)
		return;
	if (!guarantee_allows_sinks(daemon)) {
		userlog_event(daemon, session->uid, USERLOG_memory, LOG_LEVEL_WARNING,
			"session %llu gets no guard: the device memory for its sinks is guaranteed to "
			"programs",
			(unsigned long long)session->number);
		return;
	}
	if (!session->sinks[0])
		ask(session, BACKEND_CHUNK_GRANULE, on_near);
	if (!session->sinks[1])
		ask(session, sink_far_bytes(daemon->device.total_bytes), on_far);
}

void sink_request_all(struct daemon *daemon)
{
	struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (session_is_live(session))
			sink_request(session);
}

void sink_retry(struct daemon *daemon)
{
	struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link) {
		if (!session->sinks_short || session->sinks_asked || !session_is_live(session))
			continue;
		session->sinks_short = false;
		sink_request(session);
	}
}

void sink_resume_all(struct daemon *daemon)
{
	struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (session_is_live(session)) {
			sink_request(session);
			tell_all(session);
		}
}

void sink_drop(struct session *session)
{
	for (int i = 0; i < 2; i++)
		session->sinks[i] = chunk_unref(session->sinks[i]);
}
