// Evidence about a session: its part in the incident under way, in earlier losses, and in work that
// does not end. fault/ changes it. Daemon, loop thread only.

#ifndef FRMPS_SERVER_INCIDENT_SESSION_EVIDENCE_H
#define FRMPS_SERVER_INCIDENT_SESSION_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/incident/in_flight.h"

struct time_limit_look;

/* Codes of Activate.recover. */
enum session_recover {
	SESSION_RECOVER_NOTHING,
	SESSION_RECOVER_BY_POLICY,
	SESSION_RECOVER_CULPRIT,
	SESSION_RECOVER_UNSURE, /* the latest results of the session cannot be trusted */
	/* In Activate in place of BY_POLICY: the policy is not that of OpenSession. */
	SESSION_RECOVER_BY_REPLAY,
	SESSION_RECOVER_BY_FAIL,
};

/* EndKernels, the latest (endless.h). */
struct session_endless {
	uint32_t generation; /* of the executor that was asked; 0: none was */
	bool is_open;	     /* not answered yet */
	uint64_t asked_us;
};

/* Of a session: session->evidence, from the session's beginning to its end. */
struct session_evidence {
	/* For the incident under way. */
	enum session_recover recover; /* how the next executor treats the session's work; saved (saved.h) */
	bool held;		      /* the session was live when the incident began; saved */
	bool quiet;		      /* nothing of the session is on the device of the executor that is
				       * halted */
	bool faulted; /* a fault of the session was contained in this life of the daemon: the session is
		       * over */
	/* The session's part in losses that are nobody's fault (attribute.c). */
	struct in_flight common; /* commands that were in flight in each of the `losses` latest ones */
	unsigned losses;
	/* Work that does not end. */
	struct time_limit_look *limit_looks; /* time_limit.c: of the first streams */
	uint32_t limit_look_count;
	struct session_endless endless;
};

/** The session's work is elsewhere from now on, or the session is over: forgets its part in losses,
 * and the looks at its streams. Twice is fine. */
void session_evidence_forget_losses(struct session_evidence *evidence);
void session_evidence_forget_looks(struct session_evidence *evidence);

#endif
