// Shares of the device for the sessions of an executor: weights and classes. The rules are in
// share.c.

#ifndef FRMPS_SERVER_EXECUTOR_SHARE_H
#define FRMPS_SERVER_EXECUTOR_SHARE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/clock.h"
#include "shm/order.h"

/* A session has the turn until the session is ahead of another by this, for the default weight. */
#define SHARE_TURN_NS (2 * CLOCK_MS)
/* A session that was idle catches up at most this, and has to wait for at most this, both for the
 * default weight. */
#define SHARE_CLAIM_NS (10 * CLOCK_MS)
#define SHARE_DEBT_NS  (1000 * CLOCK_MS)
/* For so long after its last work a session counts as having work: most programs have a next
 * command by then. */
#define SHARE_LINGER_NS (100 * CLOCK_US)
/* The begin of a turn does not wait for other sessions that have ended no command for this long. */
#define SHARE_DRAIN_NS (50 * CLOCK_MS)
/* A session whose thread has not looked for this long holds no other back. */
#define SHARE_STALE_NS (100 * CLOCK_MS)
/* Interval of looks for a session that has work. */
#define SHARE_LOOK_NS (50 * CLOCK_US)
/* Work that a session may have on the device. */
#define SHARE_QUEUE_NS CLOCK_MS
/* Commands of a stream, while their time is not known. */
#define SHARE_QUEUE_FIRST 4u
/* A hold lasts so many times as long as the session's latest work, but no less and no more than: */
#define SHARE_PATIENCE	    64u
#define SHARE_HOLD_LEAST_NS CLOCK_MS
#define SHARE_HOLD_MOST_NS  (1000 * CLOCK_MS)
/* If no command of a held-back session ends for twice the usual time of a command, within these
 * bounds, the session may be waiting for a command that is held back. */
#define SHARE_STUCK_LEAST_NS (10 * CLOCK_MS)
#define SHARE_STUCK_MOST_NS  (100 * CLOCK_MS)

/* The serving thread's view of a session. */
struct share_sight {
	bool wants;	  /* the session is running, and has commands that could go to the device */
	uint64_t undone;  /* commands on the device */
	unsigned streams; /* streams with such commands */
};

/* Of a session. */
struct share {
	/* Serving thread. */
	uint32_t word;	  /* SHM_SHARE_*, as last read */
	bool is_bound;	  /* `credit` may be below the usual limit of a stream, or the session is listed */
	uint64_t credit;  /* commands that each stream may have on the device now */
	uint64_t between; /* unmarked commands after which a stream gets a mark */
	uint64_t before;  /* ns: device time with earlier executors */
	uint64_t counted; /* ns: `used`, as last seen */

	/* From here on under shares.lock. */
	TAILQ_ENTRY(share) link;
	uint32_t weight;
	bool is_special; /* has a weight or class of its own */
	bool is_offline, is_listed, is_present;
	uint64_t virtual;	/* device time in proportion to the weight: the least is next */
	uint64_t used;		/* ns: device time, as far as this executor has looked */
	uint64_t each;		/* shares.each at the latest count */
	uint64_t undone, cost;	/* commands, as last seen; ns for one of them, 0: not known */
	uint64_t busy, unended; /* ns: with commands on the device: in all, and since one ended */
	uint64_t busy_before;	/* ns: `busy` at the end of the latest hold */
	uint64_t looked_at, wanted_at, ended_at, held_at; /* ns; held_at 0: not held back */
};
TAILQ_HEAD(share_list, share);

/* Of an executor. */
struct shares {
	word32 *on;
	pthread_mutex_t lock;
	struct share_list listed; /* sessions that have work, or had a moment ago */
	unsigned specials;	  /* sessions with a weight or class of their own */
	unsigned present;	  /* listed sessions with commands on the device */
	uint64_t each;		  /* ns: device time that a session which was always present has had */
	uint64_t at;		  /* ns: time of the latest count */
	struct share *first;	  /* the next session at `found_at`; NULL: to be found */
	uint64_t found_at;	  /* ns */
	struct share *runner;	  /* has the turn; NULL: none */
	bool is_clear;		  /* work of others at the begin of the turn has ended */
};

/** @on: not 0 while a session has a weight or class of its own; outlives the shares */
void shares_init(struct shares *shares, word32 *on);
void shares_deinit(struct shares *shares);

/** Initialises a session that is not bound. */
void share_init(struct share *share);

/** Sets the word of the daemon: SHM_SHARE_*. Serving thread. */
void share_set(struct shares *shares, struct share *share, uint32_t word);

/** Before commands are issued: sets credit and between. @now: ns. Serving thread. */
void share_look(struct shares *shares, struct share *share, const struct share_sight *sight, uint64_t now);

/** After that: notes the commands on the device. Serving thread. */
void share_note(struct shares *shares, struct share *share, uint64_t undone, uint64_t now);

/** The session gets no more looks, or needs none. Serving thread. */
void share_leave(struct shares *shares, struct share *share);

#endif
