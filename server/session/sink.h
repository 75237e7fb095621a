// The sinks of a session: two pieces of device memory that its executors map around its memory, again and
// again (executor/guard.c). Daemon, loop thread only. They are the service's: they count neither as the
// program's memory nor against its limit, and go with the session.

#ifndef FRMPS_SERVER_SESSION_SINK_H
#define FRMPS_SERVER_SESSION_SINK_H

#include <stdbool.h>

#include "server/session/session.h"

struct daemon;
struct worker;

/** Has the keeper make those that are missing and tells the executors, unless the guard is off. The session is
 * served, and no keeper has been asked for them that may still answer. */
void sink_request(struct session *session);
/** The same for every session that is served: there is another keeper. */
void sink_request_all(struct daemon *daemon);
/** There is another daemon, and no record of what was on its way: besides, executors are told of what there is. */
void sink_resume_all(struct daemon *daemon);

/** Whether the session has them: the executors that know it have a guard for it. */
static inline bool sink_is_there(const struct session *session)
{
	return session->sinks[0] && session->sinks[1];
}

/** Tells an executor that knows the session, if the sinks are there. */
void sink_tell(struct session *session, struct worker *worker);

/** Gives them back; no executor has the session any more. */
void sink_drop(struct session *session);

#endif
