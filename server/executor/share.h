// How much of the device each session of an executor may have: weights and classes. The rules are
// in share.c.

#ifndef FRMPS_SERVER_EXECUTOR_SHARE_H
#define FRMPS_SERVER_EXECUTOR_SHARE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/executor/clock.h"
#include "shm/order.h"

/* A session whose turn it is keeps it until it is ahead of another one by this, for the default
 * weight. */
#define SHARE_TURN_NS (2 * CLOCK_MS)
/* What a session that had nothing to do may catch up at most, and what it has to wait for at most,
 * both for the default weight. */
#define SHARE_CLAIM_NS (10 * CLOCK_MS)
#define SHARE_DEBT_NS  (1000 * CLOCK_MS)
/* For so long after its last work a session counts as one that has some: most programs have a next
 * command by then. */
#define SHARE_LINGER_NS (100 * CLOCK_US)
/* Work of others on which nothing has ended for this long is not waited for at the begin of a
 * turn. */
#define SHARE_DRAIN_NS (50 * CLOCK_MS)
/* A session whose thread has not looked for this long holds nobody back. */
#define SHARE_STALE_NS (100 * CLOCK_MS)
/* How often the thread of a session that has work looks. */
#define SHARE_LOOK_NS (50 * CLOCK_US)
/* How much work a session may have on the device. */
#define SHARE_QUEUE_NS CLOCK_MS
/* Commands of a stream, while nobody knows how long they take. */
#define SHARE_QUEUE_FIRST 4u
/* A session is held back for so many times as long as its latest work took, but for no less and no
 * more than: */
#define SHARE_PATIENCE	    64u
#define SHARE_HOLD_LEAST_NS CLOCK_MS
#define SHARE_HOLD_MOST_NS  (1000 * CLOCK_MS)
/* Held back, and of what it has on the device nothing ends for twice as long as one of its commands
 * takes, within these: what it waits for may be held back. */
#define SHARE_STUCK_LEAST_NS (10 * CLOCK_MS)
#define SHARE_STUCK_MOST_NS  (100 * CLOCK_MS)

/* What the serving thread sees of a session. */
struct share_sight {
	bool wants;	  /* it goes on, and has commands that could go to the device */
	uint64_t undone;  /* commands on the device */
	unsigned streams; /* in which these are */
};

/* Of a session. */
struct share {
	/* Serving thread. */
	uint32_t word;	  /* SHM_SHARE_*, as last read */
	bool is_bound;	  /* `credit` may be less than a stream may have anyhow, or it is listed */
	uint64_t credit;  /* commands that each of its streams may have on the device now */
	uint64_t between; /* unmarked commands after which a stream gets a mark */
	uint64_t before;  /* ns: its device time with earlier executors */
	uint64_t counted; /* ns: `used`, as last seen */

	/* From here on under shares.lock. */
	TAILQ_ENTRY(share) link;
	uint32_t weight;
	bool is_special; /* it is why the sessions are looked at */
	bool is_offline, is_listed, is_present;
	uint64_t virtual;	/* device time in proportion to its weight: who has least is next */
	uint64_t used;		/* ns: its device time, as far as this executor has looked */
	uint64_t each;		/* shares.each, as far as it is counted */
	uint64_t undone, cost;	/* commands, as last seen; ns for one of them, 0: not known */
	uint64_t busy, unended; /* ns: with something on the device: ever, and since something ended */
	uint64_t busy_before;	/* ns: `busy` when it was last let go on */
	uint64_t looked_at, wanted_at, ended_at, held_at; /* ns; held_at 0: it is not held back */
};
TAILQ_HEAD(share_list, share);

/* Of an executor. */
struct shares {
	word32 *on;
	pthread_mutex_t lock;
	struct share_list listed; /* sessions that have work, or had a moment ago */
	unsigned specials;	  /* sessions with a weight or class of their own */
	unsigned present;	  /* listed ones with something on the device */
	uint64_t each;		  /* ns: device time that a session which was always present has had */
	uint64_t at;		  /* ns: until when that is counted */
	struct share *first;	  /* who was next at `found_at`; NULL: to be found */
	uint64_t found_at;	  /* ns */
	struct share *runner;	  /* whose turn it is; NULL: nobody's */
	bool is_clear;		  /* what others had on the device when its turn began has ended */
};

/** @on: not 0 while a session has a weight or class of its own; outlives the shares */
void shares_init(struct shares *shares, word32 *on);
void shares_deinit(struct shares *shares);

/** Of a session that is not bound. */
void share_init(struct share *share);

/** What the daemon says: SHM_SHARE_*. Serving thread. */
void share_set(struct shares *shares, struct share *share, uint32_t word);

/** Before commands are issued: sets credit and between. @now: ns. Serving thread. */
void share_look(struct shares *shares, struct share *share, const struct share_sight *sight, uint64_t now);

/** After that: what is on the device now. Serving thread. */
void share_note(struct shares *shares, struct share *share, uint64_t undone, uint64_t now);

/** The session is not looked at any more, or need not be. Serving thread. */
void share_leave(struct shares *shares, struct share *share);

#endif
