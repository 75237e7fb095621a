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
	PROMOTE_LOST,	/* the executor died, broke the protocol or lost its context */
	PROMOTE_SIGN,	/* a sign of a fault */
	PROMOTE_SILENT, /* the executor does not answer, and shows no other sign */
	PROMOTE_ORPHAN, /* work of a dead program runs in the executor and does not end */
	PROMOTE_LIMIT,	/* work of a program has passed its time limit */
};

/* When things happened, microseconds; 0: not in this promotion. */
struct promote_times {
	uint64_t detected, halted, quiet, fenced, judged, activate;
};

/* The promotion of a domain that loses its active executor. Everything up to the handles outlives
 * the daemon (saved.h). */
struct promotion {
	enum incident_state state;
	enum promote_cause cause; /* of the latest loss */
	bool fell_short;	  /* the executor that is lost now had not answered Activate */
	struct judge_verdict verdict;
	char verdict_text[2048]; /* the latest verdict; empty before the first */
	int64_t verdict_ms;	 /* of the verdict, milliseconds since the epoch */
	/* About the culprit, copied because the session may be gone when the promotion is over. */
	int culprit_pid;
	char culprit_program[64];
	struct promote_times times;
	uint64_t over_limit; /* session whose work has passed its time limit; 0: none */
	/* Halting. */
	uint64_t halt_until_us;
	uint64_t moved_us;	 /* when a mark was last seen to arrive */
	uint64_t progress;	 /* by which movement is noticed */
	uint64_t fence_until_us; /* LEAVING: deadline for leaving the device */
	char sign[160];		 /* the first sign, as text */
	bool orphan;		 /* work of a dead program runs in the active executor and does not end */
	uint64_t contained;	 /* session of the latest fault that was contained; 0: there was none */
	/* Handles: of this life of the daemon alone. */
	struct timer *halt_timer;
	struct timer *time_limit_timer; /* NULL: no limit */
	struct saved_list
		*adopted; /* evidence of an earlier life about sessions that are not adopted yet; NULL: all
			   * are */
};

/* Asked by the rooms below (session/rooms.h). */
bool promote_is_serving(const struct domain *domain);
bool promote_is_halting(const struct domain *domain);

/* Asked by worker/ (struct worker_events). */
bool promote_is_activating(const struct worker *worker);
bool promote_is_awaited(const struct worker *worker);

/** Return: 0 or -ENOMEM. */
int promote_init(struct domain *domain);
void promote_deinit(struct domain *domain);

/**
 * The active executor shows a sign of a fault and lives.
 * Return: true if the executor is halted; otherwise the caller terminates a worker that has lost
 * its context.
 */
bool promote_sign(struct domain *domain, struct worker *worker, const char *sign);
/** A worker reports the loss of its context: an executor that can be halted lives on for a while,
 * any other worker is terminated, unless the device is the cause. */
void promote_lost(struct worker *worker, const char *text);
/** The active executor has not closed a session in time. */
void promote_close_overdue(struct domain *domain);
/** A standby that has answered everything: only then the daemon knows which sessions the standby
 * can take over. NULL: none. */
struct worker *promote_find_warm(const struct domain *domain);

/** The active executor has contained a fault of a session: the session has got its error, everybody
 * else goes on. */
void promote_contained(
	struct domain *domain, struct worker *worker, uint64_t session, const struct wire_trouble *fault);
/** The active executor has not answered in time. A sign that blames nobody. */
void promote_silent(struct domain *domain, struct worker *worker);
/**
 * An event that needs no further data: takes the step, and carries its actions out.
 * Return: of enum incident_action; 0: the event means nothing in the domain's state
 */
unsigned promote_take(struct domain *domain, enum incident_event event);
/** Goes on from the record of an earlier life of the daemon. */
void promote_resume(struct domain *domain);
/** Sends the Activate that is under way again: the daemon has died since. */
void promote_activate_again(struct domain *domain);
/** A worker of the domain is being terminated; if the worker is the active executor, the domain's
 * sessions are held. */
void promote_detect(struct domain *domain, struct worker *worker);
/** A worker of the domain was reaped and has left the domain's list. */
void promote_fenced(struct domain *domain, struct worker *worker);
/** The active executor issues nothing any more and is off the device: whatever ran was cut. */
void promote_off_device(struct domain *domain);
/** Halting has succeeded: nothing of a survivor is left in the active executor, and the executor
 * issues nothing. */
void promote_hand_over(struct domain *domain);
/** A standby knows everything. */
void promote_warm(struct domain *domain, struct worker *worker);
/** Work of a dead program does not end: replace the active executor as soon as a standby is
 * warm. */
void promote_orphan(struct domain *domain, const struct session *session);

/** Work of a program has passed its time limit: replace the executor likewise; the program gets an
 * error. */
void promote_over_limit(struct domain *domain, struct session *session);

/** Holds the sessions of the domain, which is all that programs see of a promotion. */
void promote_hold_sessions(struct domain *domain);

#endif
