// Evidence about executors, and what fault/ forgets about sessions (incident/session_evidence.h).
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_EVIDENCE_H
#define FRMPS_SERVER_FAULT_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/incident/in_flight.h"
#include "server/session/session.h"

struct worker;
struct xid;

/* Of an executor: worker->evidence; NULL while there is none. */
struct worker_evidence {
	uint64_t reported_us;	   /* when the kernel log named the worker; 0: never */
	int32_t reported_code;	   /* the first particular code */
	uint64_t reported_address; /* that was accessed; 0: unknown */
	uint64_t lost_us;	   /* when the worker sent Lost, in this life of the daemon; 0: never */
};

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
