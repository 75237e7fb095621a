// Finding out that the context is lost when nobody issues anything. Serving thread; main thread once a
// session is detached.

#ifndef FRMPS_SERVER_EXECUTOR_SENTRY_H
#define FRMPS_SERVER_EXECUTOR_SENTRY_H

#include "server/executor/clock.h"
#include "server/executor/session.h"

/* How old the word of a call may be that says that the context is well. */
#define SENTRY_LEAST_NS (200 * CLOCK_US)
/* Each session that waits asks at least so often, whatever others have heard. */
#define SENTRY_OWN_NS (5 * CLOCK_MS)

/** Something of the stream is on the device. */
void sentry_note(struct session *session, struct stream *stream);

/** A call of the driver that looks at the context was answered without an error. */
static inline void sentry_heard(struct session *session)
{
	word_set(&session->executor->heard_at, session->now);
}

/** Forgets streams of which everything is done; asks the driver about the others when it is time. */
void sentry_look(struct session *session);

/** When to look again although nobody rings: ns, UINT64_MAX = never. */
uint64_t sentry_next_look(const struct session *session, uint64_t now);

#endif
