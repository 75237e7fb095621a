// A domain: the sessions of one user and the executors that serve them in one context at a time.
// Daemon, loop thread only.
//
// The first domain is made before any program comes and belongs to nobody until the first one does;
// it then belongs to that user for good. Invariants: sessions of a domain have disjoint windows; at
// most one worker is `active`; the number of workers, until they are reaped, is kept at 1 +
// standbys while the domain lives. A domain without sessions lives for domain_idle_seconds more,
// the last domain for good. A domain of one program alone (isolation = client, quarantine,
// standby/move.c) goes with it. Where the device lets one process have a context, a domain that is
// not retiring is the only one, and its executor starts when the last one of any other is reaped.

#ifndef FRMPS_SERVER_SESSION_DOMAIN_H
#define FRMPS_SERVER_SESSION_DOMAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "server/identity.h"
#include "server/session/window.h"

struct daemon;
struct session;
struct move;
struct promotion;
struct record;
struct timer;
struct wire_message;
struct worker;

/* Starts in a row that failed before the operator and waiting programs are told. */
#define DOMAIN_START_FAILURES 3u

struct domain {
	TAILQ_ENTRY(domain) link;
	struct daemon *daemon;
	bool assigned;	       /* to the user of `identity` */
	bool alone;	       /* to one program of his: no spare executor, and gone with it */
	bool ordered;	       /* that it is alone, by the configuration: not a part of its user's share */
	char reason[160];      /* why it is alone; else empty */
	bool dismissed;	       /* by an operator: takes no more sessions, and goes with its last one */
	uint64_t memory_limit; /* most device memory of sessions that begin in it; 0: no operator set one */
	uint64_t sm_percent;   /* most multiprocessors of such sessions, percent; the same */
	struct move *arrival;  /* a session is on its way into it (standby/move.h); NULL: none */
	struct identity identity; /* also as whom executors run, if they run as their user (role.h) */
	TAILQ_HEAD(, worker) workers;
	struct worker *active; /* from the moment Activate is sent until it is reaped */
	TAILQ_HEAD(, session) sessions;
	struct window_set windows; /* in use by sessions, or not free yet after them */
	TAILQ_HEAD(, linger) lingers;
	uint32_t generation;	     /* the latest given out to an executor */
	struct promotion *promotion; /* what fault/ knows of it (fault/promote.h) */
	unsigned start_failures;
	uint64_t start_short_us; /* when an executor first had no device memory for its start; 0: none */
	char start_error[256];	 /* why the latest start failed */
	struct timer *respawn;
	struct timer *telling; /* until standbys are told of what is untold (standby/warm.h) */
	struct timer *idle;    /* runs while a user's domain has no sessions */
	bool retiring;	       /* takes no sessions; freed when the last worker and session are gone */
	/* What outlives the daemon. */
	uint32_t number;      /* unique in the life of the service */
	uint64_t activate_id; /* of the Activate that the active executor has not answered; 0: none */
	const struct record *record;
};

/** Not recorded yet: domain_keep(), when it is known whose it is. */
struct domain *domain_new(struct daemon *daemon);
/** The same for a program of the user of `of` alone, whose executors have later generations than
 * that. */
struct domain *domain_new_alone(const struct domain *of);
/** The same with the number that it had in an earlier life of the daemon. */
struct domain *domain_new_numbered(struct daemon *daemon, uint32_t number);

/** Records the domain, with what fault/ knows of it. */
void domain_keep(struct domain *domain);

/**
 * Records everything that a promotion depends on: verdict, sessions, workers. @activates: Activate
 * is the next request to domain->active; it is sent again, should the daemon die.
 */
void domain_keep_all(struct domain *domain, bool activates);

/** Spawns the next executor, unless there are enough, one of the same user is starting, a back-off
 * runs, or the device lets one process have a context and there is an executor. */
void domain_fill(struct domain *domain);
/** The same for all domains of its user: a start is over. */
void domain_fill_all(struct domain *domain);

/** Its executors. One that is dying still has its context and all memory mapped: its place is not
 * free. */
unsigned domain_executors_there(const struct domain *domain);
/** How many it is to have. */
unsigned domain_executors_wanted(const struct domain *domain);
/** How many spare ones a domain of several programs has. */
unsigned domain_spares(const struct daemon *daemon);
/** How many have, or are to get, memory of the device. */
unsigned domain_executors(const struct domain *domain);

/** Its session with this number, NULL if there is none. */
struct session *domain_find_session(const struct domain *domain, uint64_t number);

/** The executor that answers requests now, NULL while there is none (start, promotion). */
struct worker *domain_serving(const struct domain *domain);

/** Whether an answer of a worker that is no success may be due to its own trouble. */
bool domain_worker_is_failing(const struct worker *worker);

/** Sends what waited for an active executor: sessions to be opened, requests to be answered. */
void domain_resume(struct domain *domain);

/** Lets no more sessions in, and takes the domain out of service when the last one is gone. */
void domain_dismiss(struct domain *domain);

/** Takes the domain out of service: executors are killed, it goes when all is gone. */
void domain_retire(struct domain *domain);

/**
 * A session came or left, or a domain was added. A user's domain that has had no session for
 * domain_idle_seconds is retired, unless no other domain serves: the last one stays, warm for
 * whoever comes.
 */
void domain_watch_idle(struct domain *domain);

/* Why a user gets no more executors. */
#define DOMAIN_NO_SHARE                                                                                      \
	"its user has as many executors as executors_per_user_max allows: they serve "                       \
	"programs in quarantine, moved apart, or of his subordinate users"
#define DOMAIN_NO_ROOM                                                                                       \
	"there is no memory for an executor of its own: the service has none, or the device none that is "   \
	"not guaranteed to others (memory_guarantee)"

#define DOMAIN_NO_CONTEXT                                                                                    \
	"the device lets one process have a context (compute mode EXCLUSIVE_PROCESS), and that executor "    \
	"serves programs of another user, or one that is for one program alone"

/* Why there is no domain. */
struct domain_refusal {
	int32_t code;	  /* for the program */
	const char *text; /* static */
};

/**
 * A domain for a user's next program: his own, else the prewarmed one if it is nobody's yet and its
 * executors run as they must, else a new one.
 * @alone: why it is to be one that no other program is in, and will be; NULL: it need not be
 * @ordered: that is so by the configuration
 * @ret_refusal: only where there is none: why
 * Return: NULL without memory, where its executors would take what is guaranteed to programs, where
 * the user's share of executors is used up, or where the device lets one process have a context and
 * another domain has programs. One without programs goes for it
 */
struct domain *domain_of(struct daemon *daemon, const struct identity *identity, const char *alone,
	bool ordered, struct domain_refusal *ret_refusal);

/**
 * Whether a user may have so many executors more, in a domain that is not ordered. Idle ones of his
 * go for them. A user is one with his subordinate users here (owner.h).
 * Return: NULL, or why not (static text)
 */
const char *domain_refuses(struct daemon *daemon, uid_t uid, uint64_t executors);

/** Sees to it that there is a domain for whoever comes. */
void domain_prewarm(struct daemon *daemon);

/** Frees a retiring domain if nothing of it is left. */
void domain_reap(struct domain *domain);

/* An event, from daemon.c. */
void domain_worker_gone(struct domain *domain, struct worker *worker);

#endif
