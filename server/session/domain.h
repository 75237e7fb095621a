// A domain: the sessions of one user and the executors that serve them in one context at a time.
// Daemon, loop thread only.
//
// The first domain is made before any program comes; it has no user until the first program comes,
// and then belongs to that user for good. Invariants: sessions of a domain have disjoint windows;
// at most one worker is `active`; while the domain lives, it has 1 + standbys workers, counted
// until they are reaped. A domain without sessions lives for domain_idle_seconds more, the last
// domain for good. A domain for a single program (isolation = client, quarantine, standby/move.c)
// ends with that program. Where the device lets one process have a context, a domain that is not
// retiring is the only one, and its executor starts when the last executor of any other domain is
// reaped.

#ifndef FRMPS_SERVER_SESSION_DOMAIN_H
#define FRMPS_SERVER_SESSION_DOMAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "server/identity.h"
#include "server/incident/promotion.h"
#include "server/session/window.h"

struct daemon;
struct session;
struct subject;
struct move;
struct record;
struct timer;
struct worker;

/* Failed starts in a row after which the operator and waiting programs are notified. */
#define DOMAIN_START_FAILURES 3u
/* Pause before another executor is started: the first. */
#define DOMAIN_RESPAWN_MS 250u

/* The programs that a domain is for. */
enum domain_use {
	DOMAIN_NOBODYS,	       /* of the next user who needs one */
	DOMAIN_SHARED,	       /* all others of the user of `identity` */
	DOMAIN_ALONE,	       /* a single one: no spare executor, and ends with the program */
	DOMAIN_ALONE_BY_ORDER, /* the same by the configuration: not a part of the user's share */
};

/* In this order. DOMAIN_DISMISSED may be left out. */
enum domain_life {
	DOMAIN_OPEN,
	DOMAIN_DISMISSED, /* by an operator: takes no more sessions, and ends with its last session */
	DOMAIN_RETIRES,	  /* takes no sessions; freed after its last worker and session */
};

struct domain {
	/* This part outlives the daemon: the record has it in this layout. */
	enum domain_use use;
	enum domain_life life;
	/* most device memory of sessions that begin here; 0: no operator set it */
	uint64_t memory_limit;
	uint64_t sm_percent; /* most multiprocessors of such sessions, percent; the same */
	/* of the Activate that the active executor has not answered; 0: none */
	uint64_t activate_id;
	uint32_t generation; /* the latest given out to an executor */
	char reason[160];    /* why the domain is for one program alone; else empty */
	/* also the user of the executors, if they run as their user (role.h) */
	struct identity identity;
	/* Owners and lists of the domain. */
	TAILQ_ENTRY(domain) link;
	struct daemon *daemon;
	struct move *arrival; /* a session is on its way here (standby/move.h); NULL: none */
	TAILQ_HEAD(, worker) workers;
	struct worker *active; /* from the moment Activate is sent until the executor is reaped */
	TAILQ_HEAD(, session) sessions;
	struct window_set windows; /* in use by sessions, or not free yet after their end */
	TAILQ_HEAD(, unpinning) unpinnings;
	struct promotion promotion; /* fault/ changes it */
	unsigned due;		    /* of enum domain_due */
	bool holds;		    /* its sessions, once the turn is recorded (fault/promote.h) */
	unsigned start_failures;
	/* first time that an executor had no device memory for its start; 0: none */
	uint64_t start_short_us;
	char start_error[256]; /* why the latest start failed */
	struct timer *respawn;
	struct timer *telling; /* until standbys get the entries that they lack (standby/warm.h) */
	struct timer *idle;    /* runs while a user's domain has no sessions */
	uint32_t number;       /* unique in the life of the service */
	const struct record *record;
	bool is_changed; /* since the record */
};

/* RECORD_DOMAIN, key: number; followed by the fields of fault/ (saved.h). */
struct domain_record {
	uint32_t active; /* worker */
	_Alignas(8) char head[offsetof(struct domain, link)];
};

/** True for a domain of a single program. */
static inline bool domain_is_alone(const struct domain *domain)
{
	return domain->use >= DOMAIN_ALONE;
}

/** Makes a domain for a single program of the user of `of`; its executors have later generations
 * than those of `of`. */
struct domain *domain_new_alone(const struct domain *of);
/** Makes a domain with the number from an earlier life of the daemon. */
struct domain *domain_new_numbered(struct daemon *daemon, uint32_t number);

/** The end of the turn records the domain (changes.h), */
void domain_changed(struct domain *domain);
/** and with it everything that a promotion depends on: verdict, sessions, workers. */
void domain_all_changed(struct domain *domain);
/** Records the domain as it is, with the state of fault/. */
void domain_save(struct domain *domain);

/** Spawns the next executor, unless there are enough, another of the same user is starting, a
 * back-off runs, or the device lets one process have a context and there is an executor. */
void domain_fill(struct domain *domain);
/** The same for all domains of the user, after a start is over. */
void domain_fill_all(struct domain *domain);

/** The number of its executors. A dying executor still has its context and all memory mapped: its
 * place is not free. */
unsigned domain_executors_there(const struct domain *domain);
/** The number of executors that the domain should have. */
unsigned domain_executors_wanted(const struct domain *domain);
/** The number of spare executors of a domain for several programs. */
unsigned domain_spares(const struct daemon *daemon);
/** The number of executors that have, or are to get, memory of the device. */
unsigned domain_executors(const struct domain *domain);

/** True if the domain may have executors at this time. */
bool domain_may_have_executors(const struct domain *domain);

/** The domain's session with this number, NULL if there is none. */
struct session *domain_find_session(const struct domain *domain, uint64_t number);

/** The executor that answers requests now, NULL while there is none (start, promotion). */
struct worker *domain_serving(const struct domain *domain);
/** True if some domain of the daemon has such an executor. */
bool domain_serves_anybody(const struct daemon *daemon);

/** True if a program needs the domain. A session that is closing does not count: its program has
 * ended, or has its error, and only its work must end. */
bool domain_has_programs(const struct domain *domain);

/** True if a worker's own trouble may be the cause of an answer without success. */
bool domain_worker_is_failing(const struct worker *worker);

/** Lets no more sessions in, and takes the domain out of service after its last session. */
void domain_dismiss(struct domain *domain);

/** Takes the domain out of service: kills the executors; the domain is freed at the end of the turn
 * that sees the last of them end (domain_is_over()). */
void domain_retire(struct domain *domain);

/**
 * A session came or left, or a domain was added. A user's domain that has had no session for
 * domain_idle_seconds is retired, unless no other domain serves: the last domain stays warm for the
 * next program.
 */
void domain_watch_idle(struct domain *domain);

/* Why a user gets no more executors. */
#define DOMAIN_NO_SHARE                                                                                      \
	"its user has as many executors as executors_per_user_max allows: they serve "                       \
	"programs in quarantine, moved apart, or of his subordinate users"
#define DOMAIN_NO_ROOM                                                                                       \
	"there is no memory for an executor of its own: the service has none, or the device none that is "   \
	"not others', or guaranteed to others (memory_guarantee, device_memory)"

#define DOMAIN_NO_CONTEXT                                                                                    \
	"the device lets one process have a context (compute mode EXCLUSIVE_PROCESS), and that executor "    \
	"serves programs of another user, or one that is for one program alone"

/* Why there is no domain. */
struct domain_refusal {
	int32_t code;	  /* for the program */
	const char *text; /* static */
};

/**
 * A domain for a user's next program: the user's own, else the prewarmed domain if it has no user
 * yet and its executors run as they must, else a new domain.
 * @alone: why no other program may ever be in the domain; NULL: others may
 * @ordered: the configuration demands that
 * @ret_refusal: only without a domain: the reason
 * Return: NULL without memory, where executors would take memory that is guaranteed to programs,
 * where the user's share of executors is used up, or where the device lets one process have a
 * context and another domain has programs. A domain without programs makes room
 */
struct domain *domain_of(struct daemon *daemon, const struct identity *identity, const char *alone,
	bool ordered, struct domain_refusal *ret_refusal);
/** The same with the terms of a program. @program: its identity (fault_history.h) */
struct domain *domain_for(struct daemon *daemon, const struct identity *identity,
	const struct subject *subject, const char *program, const char *alone,
	struct domain_refusal *ret_refusal);

/**
 * Checks if a user may have so many more executors, in a domain that is not ordered. Idle domains
 * of the user make room. A user is one with his subordinate users here (owner.h).
 * Return: NULL, or the obstacle (static text)
 */
const char *domain_refuses(struct daemon *daemon, uid_t uid, uint64_t executors);

/** Ensures that there is a domain for the next new user. */
void domain_prewarm(struct daemon *daemon);

/** An executor could not start: another is tried later; after DOMAIN_START_FAILURES waiting
 * programs are refused. */
void domain_start_failed(struct domain *domain, const char *reason);

/** True for a domain that RETIRES, without workers and sessions. */
bool domain_is_over(const struct domain *domain);
/** Frees a domain that is over. */
void domain_free(struct domain *domain);

#endif
