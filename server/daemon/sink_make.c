// See sink_make.h. A session is served before it has its sinks. The requests to the keeper are sent
// before the program can ask for memory, and the keeper answers in order, so executors know of the
// guard before they map the first memory. Without sinks (no memory for them, a backend that cannot
// examine them) the session goes on without a guard. The next keeper gets the requests that the
// last keeper had not answered, or that no keeper was there for: then executors get the guard when
// memory is mapped already.

#include "server/daemon/sink_make.h"

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/config/config.h"
#include "server/log.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/guarantee.h"
#include "server/session/reclaim.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/session/userlog.h"
#include "server/standby/swap.h"
#include "server/worker/worker.h"

/* The device has no memory for the sinks. Return: true if others make room (memory_policy =
 * swap) */
static bool awaits_room(struct session *session)
{
	struct daemon *daemon = session->daemon;
	uint64_t wait_ms;

	wait_ms = swap_make_room(session, sink_bytes(daemon->device.total_bytes), SWAP_PATIENT);
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
		sink_tell_all(session);
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
			sink_tell_all(session);
		}
}
