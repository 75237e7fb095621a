// See sink.h.

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
#include "server/session/session.h"
#include "server/session/userlog.h"
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

	if (!session->sink || session_is_left_out(session, worker))
		return;
	message.open_guard = (struct wire_open_guard){
		.policy = config->guard == CONFIG_GUARD_ERROR ? GUARD_ERROR : GUARD_WARN,
		.interval_ms = (uint32_t)config->guard_interval_ms};
	worker_request(worker, &message, &session->sink->fd, 1, on_told, session_ref(session));
}

void sink_tell_all(struct session *session)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &session->domain->workers, link)
		if (worker_knows_sessions(worker))
			sink_tell(session, worker);
	if (session->destination)
		sink_tell(session, session->destination);
}

void sink_drop(struct session *session)
{
	session->sink = chunk_unref(session->sink);
}
