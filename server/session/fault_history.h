// Fault histories: of programs whose kernels fault, or whose requests crash executors, again and
// again. After quarantine_faults proved faults, a program gets executors of its own, so its faults
// hurt no other program. The next run of a program is another process; a program is the same if the
// same user runs the same executable and the same script (Hello.identity). The program itself
// states its identity: a false identity can only lead to a context shared with programs of the same
// user. A cgroup or the arguments are no part of the identity: they change from run to run.
//
// A program is forgotten when it has not faulted for FAULT_HISTORY_SECONDS, when its user has
// FAULT_HISTORIES_PER_USER other programs that faulted later, or when an operator asks
// (fault_history_lift()). Another life of the daemon restores all entries; a restarted service
// begins anew, as the operator who restarts it expects. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_FAULT_HISTORY_H
#define FRMPS_SERVER_SESSION_FAULT_HISTORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "server/session/session.h"

struct record;

/* A fault counts for so long. */
#define FAULT_HISTORY_SECONDS	 86400u
#define FAULT_HISTORIES_PER_USER 32u
/* Least time between executors that an owner's programs get because of their faults. */
#define FAULT_HISTORY_PACE_MS 250u

struct fault_history {
	TAILQ_ENTRY(fault_history) link; /* daemon->fault_histories, latest first */
	uint64_t number;		 /* for operators */
	uid_t uid;
	char program[SESSION_IDENTITY_MAX];
	uint64_t faults;
	uint64_t latest_us;  /* time of the latest fault */
	uint64_t started_us; /* time of the latest executor of its own */
	const struct record *record;
};

/** A fault of this session was proved. */
void fault_history_note(struct daemon *daemon, const struct session *session);
/** True if a program of this identity is to have executors of its own. */
bool fault_history_is_quarantined(struct daemon *daemon, uid_t uid, const char *program);
/**
 * A process of a program in quarantine gets an executor of its own. Whoever faults again and again
 * starts one executor after the other, and each takes processors and the device for a while.
 * Return: ms until this executor may start
 */
uint64_t fault_history_pace(struct daemon *daemon, uid_t uid, const char *program);
/** Forgets entries whose time is over: before daemon->fault_histories is read. */
void fault_history_expire(struct daemon *daemon);
/** The entry with this number; NULL: there is none. */
struct fault_history *fault_history_find(struct daemon *daemon, uint64_t number);
/** Forgets an entry: the program's faults count anew. Its processes that run alone go on alone. */
void fault_history_lift(struct daemon *daemon, struct fault_history *history);
/** Makes an entry from a record of an earlier life. */
void fault_history_adopt(struct daemon *daemon, const struct record *record);
/** Frees all entries; their records stay. */
void fault_history_deinit(struct daemon *daemon);

#endif
