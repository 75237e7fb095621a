// Deferred frees: resources that may be given back to the driver only while nothing runs. These are
// pinned memory that clients freed, and pinned memory, session regions and modules of clients that
// ended. The driver would hold up the launches of all sessions until the last running kernel has
// ended, maybe for ever. The rules are in deferred.c.

#ifndef FRMPS_SERVER_EXECUTOR_DEFERRED_H
#define FRMPS_SERVER_EXECUTOR_DEFERRED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/executor/range.h"
#include "shm/order.h"

struct executor;
struct job;
struct tenant;

/* Deferred frees that wait before the gate is shut for them. */
#define DEFERRED_COUNT 64u
/* How often to look for an idle moment while something waits. */
#define DEFERRED_LOOK_NS (100 * CLOCK_MS)

/* A deferred free: of a range that a session freed, or of all resources left of a session. */
struct deferred_free {
	TAILQ_ENTRY(deferred_free) link;
	struct tenant *tenant;			/* a reference */
	struct range range;			/* empty: the whole session */
	uint64_t bytes;				/* pinned bytes that still wait */
	uint64_t since;				/* ns: when it was put off */
	struct job *waiter;			/* is answered when the free is done; or NULL */
	void (*release)(struct tenant *tenant); /* of the whole session: the last step */
};

/* Of an executor. */
struct deferred_frees {
	pthread_mutex_t lock;		  /* of the next three, and of bytes and waiter of each entry */
	TAILQ_HEAD(, deferred_free) list; /* only the module thread takes out */
	uint64_t bytes;			  /* of all entries */
	unsigned count;
	uint64_t retry_at;  /* ns: the gate is not shut for deferred frees before; module thread */
	uint64_t tried_at;  /* ns: when it was last shut in vain for an old one; module thread */
	_Atomic bool stuck; /* no gap came when the gate was last shut for deferred frees */
};

/* Freed pinned memory that may wait for a quiet moment, bytes. Changed by tests alone, before an
 * executor starts. */
extern uint64_t deferred_limit;

void deferred_init(struct executor *executor);
/** Nothing may be waiting any more. */
void deferred_deinit(struct executor *executor);

/** A range of pinned memory that commands cannot name any more. Module thread. Return: 0 or
 * -ENOMEM. */
int deferred_add_range(struct tenant *tenant, const struct range *range);
/**
 * A tenant that is out of the registry, except for its addresses on the device. Takes a reference
 * over. Module thread.
 * @bytes: bytes that the tenant has pinned
 * @release: gives back the remaining resources when no memory of the tenant is pinned any more; in
 * a gap
 */
void deferred_add_tenant(struct tenant *tenant, uint64_t bytes, void (*release)(struct tenant *tenant));

/**
 * Lets a job be answered when the session (range NULL), or the range that it freed, is given back.
 * Return: false if no such free waits: the caller keeps the job. Main thread.
 */
bool deferred_watch(struct executor *executor, uint64_t session, const struct range *range, struct job *job);

/** Pinned bytes of the session that wait. Module thread. */
uint64_t deferred_bytes(const struct tenant *tenant);

/** Return: true if more memory may be pinned: not while too many bytes wait for a gap that does not
 * come. Any thread. */
bool deferred_admits(struct executor *executor);

/** Return: true if more than the limit waits, and the latest try found no gap. Any thread. */
bool deferred_is_stuck(struct executor *executor);

/** Return: true if a free waits. Any thread. */
bool deferred_waits(struct executor *executor);

/** Return: true if so much waits that deferred frees should precede other requests. Module
 * thread. */
bool deferred_presses(struct executor *executor);

/** Frees all that can be freed now without stopping other sessions for longer than a gap. Module
 * thread.
 * Return: true if there was a gap; more may be possible at once. */
bool deferred_work(struct executor *executor);

/** Frees all entries at once: no session is served any more. Module thread. */
void deferred_finish(struct executor *executor);

#endif
