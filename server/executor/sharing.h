// Shares of the device in the serving loop. Serving thread, but for sharing_join().

#ifndef FRMPS_SERVER_EXECUTOR_SHARING_H
#define FRMPS_SERVER_EXECUTOR_SHARING_H

#include "server/executor/tenant.h"

/** Return: true if shares are counted, or have just changed. Reads two words, and one of the
 * tenant's own. */
static inline bool sharing_is_on(const struct tenant *tenant)
{
	return word_relaxed(&tenant->executor->sharing) || tenant->share.is_bound ||
	       word_relaxed(&tenant->view.server->share) != tenant->share.word;
}

/** Both halves of a turn of a tenant that is served: before commands are issued, if
 * sharing_is_on(), and after that, if the tenant is listed then. */
void sharing_begin(struct tenant *tenant);
void sharing_end(struct tenant *tenant);

/** The tenant comes from another executor, or is new. Main thread, before it is served. */
void sharing_join(struct tenant *tenant);
/** The serving thread releases the tenant. */
void sharing_leave(struct tenant *tenant);

/** When to look again without a ring of the doorbell: ns, UINT64_MAX = never. */
uint64_t sharing_next_look(const struct tenant *tenant, uint64_t now);

#endif
