// What fault/ knows of each session and of each executor. struct session and struct worker point at
// it, and nobody below fault/ looks into it. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_EVIDENCE_H
#define FRMPS_SERVER_FAULT_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/fault/doubt.h"
#include "server/session/session.h"

struct overrun;
struct worker;
struct xid;

/* EndKernels, the latest (endless.h). */
struct session_endless {
	uint32_t generation; /* of the executor that was asked; 0: none was */
	bool is_open;	     /* it has not answered */
	uint64_t asked_us;
};

/* Of a session: session->evidence, from the session's beginning to its end. */
struct session_evidence {
	/* For the incident under way. */
	enum session_recover recover; /* what the next executor is to do with its work; saved (saved.h) */
	bool held;		      /* it was live when the incident began; saved */
	bool quiet;		      /* nothing of it is on the device of the executor that is halted */
	bool faulted; /* a fault of it was contained, in this life of the daemon: it is over */
	/* Its part in losses of executors that nobody is to blame for (convict.c). */
	struct doubt common; /* commands that were in doubt in each of the `losses` latest ones */
	unsigned losses;
	/* Work that does not end. */
	struct overrun *overruns; /* overrun.c; NULL: nothing seen */
	struct session_endless endless;
};

/* Of an executor: worker->evidence; NULL while there is none. */
struct worker_evidence {
	uint64_t testified_us;	    /* when the kernel log named it; 0: it has not */
	int32_t testified_code;	    /* the first that said something in particular */
	uint64_t testified_address; /* that was accessed; 0: not said */
	uint64_t lost_us;	    /* when it said Lost, in this life of the daemon; 0: it has not */
};

/** A session comes, and goes. Return: 0 or -ENOMEM */
int evidence_open(struct session *session);
void evidence_close(struct session *session);

/** What a session does from now on has nothing to do with earlier losses: its work is elsewhere. */
void evidence_forget_losses(struct session *session);

/** What is known of a worker; never NULL. */
const struct worker_evidence *evidence_of(const struct worker *worker);
/** A worker is gone. */
void evidence_drop(struct worker *worker);

/** The kernel log names a worker. That is remembered for a while, and is evidence if something else
 * says that there is a fault. */
void evidence_take_xid(struct worker *worker, const struct xid *xid);
/** Whether the kernel log named it a moment ago. */
bool evidence_is_testified(const struct worker *worker);
/** It says Lost. */
void evidence_take_lost(struct worker *worker);
/**
 * A fault that it has contained is told and judged: what its last words and the kernel log say of
 * it so far is no evidence of another.
 * @number: of the fault; 0: it does not count them
 */
void evidence_settle(struct worker *worker, uint32_t number);

#endif
