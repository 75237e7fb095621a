// Notices the loss of the context when no session issues commands. Serving thread; main thread once
// a session is detached.

#ifndef FRMPS_SERVER_EXECUTOR_SENTRY_H
#define FRMPS_SERVER_EXECUTOR_SENTRY_H

#include "server/clock.h"
#include "server/executor/tenant.h"

/* A call that shows that the context is well counts for so long. */
#define SENTRY_LEAST_NS (200 * CLOCK_US)
/* Each session that waits queries at least so often, whatever other calls have shown. */
#define SENTRY_OWN_NS (5 * CLOCK_MS)

/** Commands of the stream are on the device. */
void sentry_note(struct tenant *tenant, struct stream *stream);

/** A call of the driver that looks at the context was answered without an error. */
static inline void sentry_heard(struct tenant *tenant)
{
	word_set(&tenant->executor->heard_at, tenant->now);
}

/** Forgets streams whose commands are all done; queries the others when due. */
void sentry_look(struct tenant *tenant);

/** When to look again without a ring of the doorbell: ns, UINT64_MAX = never. */
uint64_t sentry_next_look(const struct tenant *tenant, uint64_t now);

#endif
