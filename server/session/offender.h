// Programs whose kernels fault, or whose requests crash executors, again and again: from
// quarantine_faults proved faults on they get executors of their own, where only they are hurt. A
// program that comes back is another process; it is the same program if the same user runs the same
// executable and the same script (Hello.identity), which the program itself says: one that lies
// shares a context with programs of its own user alone. A cgroup or the arguments are no part of
// it: they change from run to run.
//
// A program is forgotten when it has not faulted for OFFENDER_SECONDS, when its user has
// OFFENDERS_PER_USER others that faulted later, or when an operator asks for it (offender_lift()).
// Another life of the daemon goes on with all of them; a service that is restarted begins anew, as
// an operator wants it who restarts it. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_OFFENDER_H
#define FRMPS_SERVER_SESSION_OFFENDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "server/session/session.h"

struct record;

/* How long a fault is remembered. */
#define OFFENDER_SECONDS   86400u
#define OFFENDERS_PER_USER 32u

struct offender {
	TAILQ_ENTRY(offender) link; /* daemon->offenders, latest first */
	uint64_t number;	    /* for operators */
	uid_t uid;
	char program[SESSION_IDENTITY_MAX];
	uint64_t faults;
	uint64_t latest_us; /* when the latest one was noted */
	const struct record *record;
};

/** A fault was proved to be this one's. */
void offender_note(struct daemon *daemon, const struct session *session);
/** Whether a program of this identity is to be kept alone. */
bool offender_is_quarantined(struct daemon *daemon, uid_t uid, const char *program);
/** Forgets those whose time is over: before daemon->offenders is read. */
void offender_expire(struct daemon *daemon);
/** The one with this number; NULL: there is none. */
struct offender *offender_find(struct daemon *daemon, uint64_t number);
/** Forgets one: what it does counts anew. Its programs that run alone go on so. */
void offender_lift(struct daemon *daemon, struct offender *offender);
/** Makes one of a record of an earlier life again. */
void offender_adopt(struct daemon *daemon, const struct record *record);
/** Lets go of all; their records stay. */
void offender_deinit(struct daemon *daemon);

#endif
