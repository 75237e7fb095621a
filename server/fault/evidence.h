// Evidence of fault/ about each session and each executor, behind pointers in struct session and
// struct worker; no room below fault/ looks inside. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_EVIDENCE_H
#define FRMPS_SERVER_FAULT_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/fault/in_flight.h"
#include "server/session/session.h"

struct time_limit_look;
struct worker;
struct xid;

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

/* Of an executor: worker->evidence; NULL while there is none. */
struct worker_evidence {
	uint64_t reported_us;	   /* when the kernel log named the worker; 0: never */
	int32_t reported_code;	   /* the first particular code */
	uint64_t reported_address; /* that was accessed; 0: unknown */
	uint64_t lost_us;	   /* when the worker sent Lost, in this life of the daemon; 0: never */
};

/** A session comes, and goes. Return: 0 or -ENOMEM */
int evidence_open(struct session *session);
void evidence_close(struct session *session);

/** Forgets the session's part in earlier losses: from now on its work is elsewhere. */
void evidence_forget_losses(struct session *session);

/** The evidence about a worker; never NULL. */
const struct worker_evidence *evidence_of(const struct worker *worker);
/** The worker's process has ended. */
void evidence_drop(struct worker *worker);

/** The kernel log names a worker. The daemon remembers that for a while, as evidence if another
 * witness reports a fault. */
void evidence_take_xid(struct worker *worker, const struct xid *xid);
/** True if the kernel log named the worker a moment ago. */
bool evidence_is_reported(const struct worker *worker);
/** The worker has sent Lost. */
void evidence_take_lost(struct worker *worker);
/**
 * The worker has contained a fault, which is reported and judged: its last words and the kernel
 * log's lines so far are no evidence of another fault.
 * @number: of the fault; 0: this executor does not count faults
 */
void evidence_settle(struct worker *worker, uint32_t number);

#endif
