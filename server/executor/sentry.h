// Finding out that the context is lost when nobody issues anything. Serving thread; main thread
// once a session is detached.

#ifndef FRMPS_SERVER_EXECUTOR_SENTRY_H
#define FRMPS_SERVER_EXECUTOR_SENTRY_H

#include "server/executor/clock.h"
#include "server/executor/tenant.h"

/* How old the word of a call may be that says that the context is well. */
#define SENTRY_LEAST_NS (200 * CLOCK_US)
/* Each session that waits asks at least so often, whatever others have heard. */
#define SENTRY_OWN_NS (5 * CLOCK_MS)

/** Something of the stream is on the device. */
void sentry_note(struct tenant *tenant, struct stream *stream);

/** A call of the driver that looks at the context was answered without an error. */
static inline void sentry_heard(struct tenant *tenant)
{
	word_set(&tenant->executor->heard_at, tenant->now);
}

/** Forgets streams of which everything is done; asks the driver about the others when it is
 * time. */
void sentry_look(struct tenant *tenant);

/** When to look again although nobody rings: ns, UINT64_MAX = never. */
uint64_t sentry_next_look(const struct tenant *tenant, uint64_t now);

#endif
