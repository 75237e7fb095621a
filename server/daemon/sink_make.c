// See sink_make.h. A session is served before it has its sink. The request to the keeper is sent
// before the program can ask for memory, and the keeper answers in order, so executors know of the
// guard before they map the first memory. Without a sink (no memory for it, a backend that cannot
// examine it) the session goes on without a guard. The next keeper gets the request that the last
// keeper had not answered, or that no keeper was there for: then executors get the guard when
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

/* The device has no memory for the sink. Return: true if others make room (memory_policy =
 * swap) */
static bool awaits_room(struct session *session)
{
	struct daemon *daemon = session->daemon;
	uint64_t wait_ms;

	wait_ms = swap_make_room(session, SINK_BYTES, SWAP_PATIENT);
	session->sink_short = wait_ms;
	if (wait_ms)
		reclaim_look_in(daemon, wait_ms);
	return wait_ms;
}

/* Takes over the sink that the keeper has made. */
static void on_made(
	void *context, struct worker *keeper, const struct wire_reply *reply, struct packet *packet)
{
	struct session *session = context;
	bool made = reply && !reply->code && reply->values.count;
	bool wanted = session->state != SESSION_CLOSING && made;

	(void)keeper;
	session->sink_asked = false;
	if (made) {
		struct chunk *chunk =
			chunk_new(session->daemon, reply->values.at[0], packet_take_fd(packet, 0));

		if (chunk && wanted)
			session->sink = chunk;
		else
			chunk_unref(chunk);
	}
	if (wanted)
		session_changed(session);
	if (wanted)
		sink_tell_all(session);
	else if (reply && reply->code &&
		 !(reply->code == CUDA_ERROR_OUT_OF_MEMORY && session_is_live(session) &&
			 awaits_room(session)))
		userlog_event(session->daemon, session->uid, USERLOG_memory, LOG_LEVEL_WARNING,
			"session %llu gets no guard: no device memory for its sink (code %d)",
			(unsigned long long)session->number, (int)reply->code);
	session_unref(session);
}

void sink_request(struct session *session)
{
	struct wire_message message = {.type = WIRE_CREATE_CHUNK, .chunk = {.bytes = SINK_BYTES}};
	struct daemon *daemon = session->daemon;

	if (daemon->config->guard == CONFIG_GUARD_OFF || session->sink || !daemon->keeper ||
		daemon->keeper->state != WORKER_WARM || daemon_is_drained(daemon))
		return;
	if (!guarantee_allows_sink(daemon)) {
		if (!awaits_room(session))
			userlog_event(daemon, session->uid, USERLOG_memory, LOG_LEVEL_WARNING,
				"session %llu gets no guard: the device memory for its sink is guaranteed to "
				"programs, or theirs",
				(unsigned long long)session->number);
		return;
	}
	session->sink_asked = true;
	worker_request(daemon->keeper, &message, NULL, 0, on_made, session_ref(session));
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
		if (!session->sink_short || session->sink_asked || !session_is_live(session))
			continue;
		session->sink_short = false;
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
