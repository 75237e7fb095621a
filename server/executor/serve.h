// The serving threads. A session belongs to a thread from serve_attach() to the end of
// serve_detach(). serve_attach() chooses the thread once, by the number of sessions.

#ifndef FRMPS_SERVER_EXECUTOR_SERVE_H
#define FRMPS_SERVER_EXECUTOR_SERVE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "shm/order.h"

struct executor;
struct tenant;
TAILQ_HEAD(served_list, tenant);
/* In the tenant, so that neither attaching nor closing a session needs memory. */
struct serve_order {
	STAILQ_ENTRY(serve_order) link;
	struct tenant *tenant;
	bool attach;
};
STAILQ_HEAD(serve_orders, serve_order);

#define SERVE_THREADS_MAX 64u

/* Each thread has its own cache lines: the neighbours write theirs at every turn. */
struct serve_thread {
	_Alignas(SHM_LINE) struct executor *executor;
	pthread_t thread;
	int epoll, kick;
	pthread_mutex_t lock; /* of orders and stop */
	struct serve_orders orders;
	bool stop, started;
	word32 ordered; /* orders or stop: a hint that needs no lock */
	unsigned load;	/* sessions; main thread */
	struct served_list tenants;
	uint64_t worked_at; /* ns */

	/* For gate.c. */
	word64 gate_seen; /* the gate's word at the beginning of a turn */
	word32 resting;	  /* sleeps, or is about to: issues nothing before another look */
	word32 gated;	  /* has held a stream for the gate */

	word64 serving; /* the session that has its turn; 0: none. For the log */
	word32 halted;	/* issues nothing more, for good (halt.c) */

	/* For park.c. */
	pid_t tid;
	bool parking;  /* it got the signal; main thread */
	word32 parked; /* does nothing more, for good */
};

struct serve_pool {
	struct serve_thread *threads;
	unsigned count;
	uint64_t spin_ns;
};

/** @threads: 0 = as many as the machine suggests (FRMPS_EXECUTOR_THREADS). Return: 0 or -errno. */
int serve_pool_init(struct executor *executor, unsigned threads);
/** Ends all threads. */
void serve_pool_deinit(struct executor *executor);

/** Lets the least loaded thread serve the session from now on. Main thread. */
void serve_attach(struct tenant *tenant);
/** Ends the service; then tenant->served becomes 0 and the board is kicked. Main thread. */
void serve_detach(struct tenant *tenant);
/** Lets the session's thread look at tenant->asked now. Main thread. */
void serve_kick(struct tenant *tenant);
/** Lets all threads look, for instance at executor->lost. Any thread. */
void serve_kick_all(struct executor *executor);

/** One turn of one session, up to 64 records. Return: whether something moved. Exported for
 * tests. */
bool serve_turn(struct tenant *tenant, uint64_t now);
/** When to look at the session again without a ring of the doorbell: ns, UINT64_MAX = never.
 * Exported for tests. */
uint64_t serve_next_look(const struct tenant *tenant, uint64_t now);

#endif
