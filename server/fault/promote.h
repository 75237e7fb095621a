// A domain's way from the loss of its active executor to the next one. States: incident.h; rules:
// promote.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_PROMOTE_H
#define FRMPS_SERVER_FAULT_PROMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/fault/incident.h"
#include "server/fault/judge.h"

struct domain;
struct saved_list;
struct session;
struct timer;
struct wire_trouble;
struct worker;

/* Why the active executor is replaced. */
enum promote_cause {
	PROMOTE_LOST,	/* it died, broke the protocol, lost its context */
	PROMOTE_SIGN,	/* a sign of a fault */
	PROMOTE_SILENT, /* the only sign is that it does not answer */
	PROMOTE_ORPHAN, /* work of a program that is gone runs in it and does not end */
	PROMOTE_LIMIT,	/* work of a program runs for longer than it may */
};

/* When things happened, microseconds; 0: not in this promotion. */
struct promote_times {
	uint64_t detected, halted, quiet, fenced, judged, activate;
};

/* What becomes of a domain that loses its active executor. All up to the handles outlives the
 * daemon (saved.h). */
struct promotion {
	enum incident_state state;
	enum promote_cause cause; /* of the latest loss */
	bool fell_short;	  /* what is lost now is an executor that had not answered Activate */
	struct judge_verdict verdict;
	char verdict_text[2048]; /* the latest, in words; empty before the first */
	int64_t verdict_ms;	 /* when it was found, milliseconds since the epoch */
	/* About the culprit, kept because it may be gone when the promotion is over. */
	int culprit_pid;
	char culprit_program[64];
	struct promote_times times;
	uint64_t over_limit; /* session whose work runs for longer than it may; 0: none */
	/* Halting. */
	uint64_t halt_until_us;
	uint64_t moved_us;	 /* when a mark was last seen to arrive */
	uint64_t progress;	 /* what that is seen by */
	uint64_t fence_until_us; /* LEAVING: when it must be off the device */
	char sign[160];		 /* the first sign, in words */
	bool orphan;	    /* work of a program that is gone runs in the active executor and does not end */
	uint64_t contained; /* session of the latest fault that was contained; 0: there was none */
	/* Handles: of this life of the daemon alone. */
	struct timer *halt_timer;
	struct timer *overrun_timer; /* NULL: no limit */
	struct saved_list
		*adopted; /* what an earlier life knew of sessions, until they have it; NULL: they do */
};

/* What the rooms below ask (session/rooms.h). */
bool promote_is_serving(const struct domain *domain);
bool promote_is_halting(const struct domain *domain);

/* What worker/ asks (struct worker_events). */
bool promote_is_activating(const struct worker *worker);
bool promote_is_awaited(const struct worker *worker);

/** Return: 0 or -ENOMEM. */
int promote_init(struct domain *domain);
void promote_deinit(struct domain *domain);

/**
 * The active executor shows a sign of a fault and lives.
 * Return: whether it is halted; otherwise the caller gives the worker up if it has lost its
 * context.
 */
bool promote_sign(struct domain *domain, struct worker *worker, const char *sign);
/** A worker says that it has lost its context: an executor that can be halted lives on for a while,
 * any other one is given up, unless that is the device's doing. */
void promote_lost(struct worker *worker, const char *text);
/** The active executor has not closed a session in time. */
void promote_close_overdue(struct domain *domain);
/** A standby whose answers are all in: only then it is known which sessions it can take over. NULL:
 * none. */
struct worker *promote_find_warm(const struct domain *domain);

/** The active executor has contained a fault of a session: the session was told, everybody else
 * goes on. */
void promote_contained(
	struct domain *domain, struct worker *worker, uint64_t session, const struct wire_trouble *fault);
/** The active executor does not answer although it should have long ago. That is a sign, and blames
 * nobody.
 */
void promote_silent(struct domain *domain, struct worker *worker);
/**
 * Something has happened that says all by itself: takes the step, and does what is to be done.
 * Return: of enum incident_action; 0: it means nothing in the domain's state
 */
unsigned promote_take(struct domain *domain, enum incident_event event);
/** Goes on from what an earlier life of the daemon has recorded. */
void promote_resume(struct domain *domain);
/** Sends the Activate that is under way again: the daemon has died since. */
void promote_activate_again(struct domain *domain);
/** A worker of the domain was condemned; if it is the active one, its sessions are held. */
void promote_detect(struct domain *domain, struct worker *worker);
/** A worker of the domain was reaped and is no longer in its list. */
void promote_fenced(struct domain *domain, struct worker *worker);
/** The active executor issues nothing any more and is off the device: whatever ran was cut. */
void promote_off_device(struct domain *domain);
/** Halting is over well: nothing of a survivor is left in the active executor, and it issues
 * nothing. */
void promote_hand_over(struct domain *domain);
/** A standby knows everything. */
void promote_warm(struct domain *domain, struct worker *worker);
/** Work of a program that is gone does not end: replace the active executor as soon as a standby is
 * warm. */
void promote_orphan(struct domain *domain, const struct session *session);

/** Work of a program runs for longer than it may: the same for its sake, and the program is
 * told. */
void promote_over_limit(struct domain *domain, struct session *session);

/** Holds the sessions of the domain: what programs see of a promotion. */
void promote_hold_sessions(struct domain *domain);

#endif
