// The children of a daemon, and their common data: the only link of worker/ to the rooms above.
// Part of the daemon. Daemon, loop thread only.

#ifndef FRMPS_SERVER_WORKER_CREW_H
#define FRMPS_SERVER_WORKER_CREW_H

#include <stdint.h>
#include <sys/queue.h>

struct compiler;
struct daemon;
struct heritage;
struct spawner;
struct store;
struct timer;
struct uv_loop_s;
struct worker;
struct worker_events;

struct crew {
	struct daemon *daemon; /* passed to the events, and otherwise not used */
	struct uv_loop_s *loop;
	const struct heritage *heritage;
	const struct spawner *spawner;
	const struct worker_events *events;
	struct store *store;	      /* NULL: nothing outlives the daemon */
	uint32_t epoch;		      /* number of this life of the daemon, from 0 */
	uint32_t latest;	      /* number given out to a worker */
	TAILQ_HEAD(, worker) workers; /* each until reaped */
	TAILQ_HEAD(, compiler) compilers;
	uint64_t compile_ms;	     /* how long a compilation may take */
	struct timer *overdue_timer; /* overdue.c */
};

#endif
