// The sink of a session: a piece of device memory that its executors map beside its memory, again
// and again (executor/guard.c). Daemon, loop thread only. It is the service's: it counts neither as
// the program's memory nor against its limit, and goes with the session.

#ifndef FRMPS_SERVER_SESSION_SINK_H
#define FRMPS_SERVER_SESSION_SINK_H

#include "server/backend/backend.h"
#include "server/session/session.h"

struct worker;

#define SINK_BYTES BACKEND_CHUNK_GRANULE

/** Informs an executor that knows the session, if the sink is there. */
void sink_tell(struct session *session, struct worker *worker);

/** Informs all executors that know the session, if the sink is there. */
void sink_tell_all(struct session *session);

/** Releases the sink; no executor has the session any more. */
void sink_drop(struct session *session);

#endif
