// A session passes from one executor generation to the next. takeover.c has the algorithm, repeat.c
// the proof that commands may be repeated. Main thread, before the session is served.

#ifndef FRMPS_SERVER_EXECUTOR_TAKEOVER_H
#define FRMPS_SERVER_EXECUTOR_TAKEOVER_H

#include "server/executor/job.h"
#include "server/executor/tenant.h"

enum takeover_verdict {
	TAKEOVER_CLEAN = 0,   /* no command was in flight */
	TAKEOVER_REPEATS = 1, /* commands in flight are repeated */
	TAKEOVER_FAULTED = 2, /* the client was notified that its work is lost */
};

/* Activate's `recover`. */
enum takeover_recover {
	TAKEOVER_NOTHING = 0,
	TAKEOVER_BY_POLICY = 1,
	TAKEOVER_CULPRIT = 2,
	TAKEOVER_UNSURE = 3,	/* kernels ran beside a fault: the latest completions cannot be believed */
	TAKEOVER_BY_REPLAY = 4, /* by policy, which has changed since OpenSession */
	TAKEOVER_BY_FAIL = 5,
};

/** Initialises the private state of a tenant that was just mapped, long before the first use. */
void takeover_prepare(struct tenant *tenant);

/**
 * Makes a session ready to be served as `generation`: adopts the journal, fills the new timeline
 * and sets the state word. Does not begin to serve; the client still has to be woken. @code,
 * @reason: of the fault that made the promotion necessary
 */
enum takeover_verdict takeover_tenant(struct tenant *tenant, uint32_t generation,
	enum takeover_recover recover, CUresult code, const char *reason);

/** Activate. Reply values: one enum takeover_verdict per session, in the order of the request. */
void takeover_handle(struct job *job);

#endif
