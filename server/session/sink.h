// The sinks of a session: two pieces of device memory that its executors map around its memory,
// again and again (executor/guard.c). Daemon, loop thread only. They are the service's: they count
// neither as the program's memory nor against its limit, and go with the session.

#ifndef FRMPS_SERVER_SESSION_SINK_H
#define FRMPS_SERVER_SESSION_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"

#include "server/session/session.h"

struct daemon;
struct worker;

#define SINK_FAR_LEAST (UINT64_C(4) << 20)
#define SINK_FAR_MOST  (UINT64_C(16) << 20)

/** Bytes of the far sink on a device with so much memory; the near sink has a granule. */
static inline uint64_t sink_far_bytes(uint64_t total_bytes)
{
	uint64_t bytes = SINK_FAR_LEAST;

	while (bytes < SINK_FAR_MOST && 2 * bytes <= total_bytes / 32 / 256)
		bytes *= 2;
	return bytes;
}

/** Bytes of both. */
static inline uint64_t sink_bytes(uint64_t total_bytes)
{
	return BACKEND_CHUNK_GRANULE + sink_far_bytes(total_bytes);
}

/** True if the session has both sinks: the executors that know the session have a guard for it. */
static inline bool sink_is_there(const struct session *session)
{
	return session->sinks[0] && session->sinks[1];
}

/** Informs an executor that knows the session, if the sinks are there. */
void sink_tell(struct session *session, struct worker *worker);

/** Informs all executors that know the session, if the sinks are there. */
void sink_tell_all(struct session *session);

/** Releases the sinks; no executor has the session any more. */
void sink_drop(struct session *session);

#endif
