// A session passes from one executor generation to the next. The algorithm is in takeover.c, the
// proof that commands may be repeated in repeat.c. Main thread, before the session is served.

#ifndef FRMPS_SERVER_EXECUTOR_TAKEOVER_H
#define FRMPS_SERVER_EXECUTOR_TAKEOVER_H

#include "server/executor/job.h"
#include "server/executor/tenant.h"

enum takeover_verdict {
	TAKEOVER_CLEAN = 0,   /* nothing was in doubt */
	TAKEOVER_REPEATS = 1, /* commands in doubt are repeated */
	TAKEOVER_FAULTED = 2, /* the client was told that its work is lost */
};

/* Activate's `recover`. */
enum takeover_recover {
	TAKEOVER_NOTHING = 0,
	TAKEOVER_BY_POLICY = 1,
	TAKEOVER_CULPRIT = 2,
	TAKEOVER_UNSURE = 3,	/* its kernels ran beside a fault: what it finished last cannot be believed */
	TAKEOVER_BY_REPLAY = 4, /* by policy, which is not that of OpenSession any more */
	TAKEOVER_BY_FAIL = 5,
};

/** Brings the private state of a tenant that was just mapped to its beginning, long before it is
 * needed. */
void takeover_prepare(struct tenant *tenant);

/**
 * Makes a session ready to be served as `generation`: its journal adopted, the new timeline filled
 * and its state word set. Does not begin to serve; a client that goes on is yet to be woken. @code,
 * @reason: of the fault that made the promotion necessary
 */
enum takeover_verdict takeover_tenant(struct tenant *tenant, uint32_t generation,
	enum takeover_recover recover, CUresult code, const char *reason);

/** Activate. Reply values: one enum takeover_verdict per session, in the order of the request. */
void takeover_handle(struct job *job);

#endif
