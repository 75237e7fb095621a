// The children of a daemon, and their common data. Part of the daemon. Daemon, loop thread only.

#ifndef FRMPS_SERVER_WORKER_CREW_H
#define FRMPS_SERVER_WORKER_CREW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/loop/connection.h"

struct daemon;
struct heritage;
struct spawner;
struct store;
struct timer;
struct uv_loop_s;

struct crew {
	struct daemon *daemon; /* not used in worker/ */
	struct uv_loop_s *loop;
	const struct heritage *heritage;
	const struct spawner *spawner;
	/* of the children's connections (daemon/children.h) */
	connection_message_fn *on_message;
	connection_closed_fn *on_closed;
	bool is_due;		      /* a worker has something due (enum worker_due) */
	bool has_changes;	      /* a worker differs from its record */
	bool kills;		      /* a worker is to die at the end of the turn */
	struct store *store;	      /* NULL: nothing outlives the daemon */
	uint32_t epoch;		      /* number of this life of the daemon, from 0 */
	uint32_t latest;	      /* number given out to a worker */
	TAILQ_HEAD(, worker) workers; /* each until reaped */
	TAILQ_HEAD(, compiler) compilers;
	uint64_t compile_ms;	     /* how long a compilation may take */
	struct timer *overdue_timer; /* fault/overdue.c */
};

#endif
