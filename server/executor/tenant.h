// A tenant: an executor's record of a session.
//
//          OpenSession        Activate         CloseSession         drained        a moment of rest
//   (none) ────────────► KNOWN ────────► SERVED ────────────► LEAVING ───────► WAITING ─────────────► (none)
//            open.c        │  takeover.c          serve.c        ▲  │ not drained    deferred.c
//                          └─────────────CloseSession────────────┘  └──► zombie: stays for ever
//
// KNOWN: mapped and registered, maps and modules follow the program's requests, no record is read
// from the ring: a standby, or a session that could not be taken over. SERVED: exactly one serving
// thread owns the part marked so below. A tenant that broke the rules stays SERVED with `stopped`
// set until CloseSession: the thread then only answers the main thread. WAITING: out of the
// registry; resources whose release would stop all sessions are still there.
//
// References: of the registry, then of the deferred free; of each job, and of each range that the
// session freed. Freed on the main or the module thread.

#ifndef FRMPS_SERVER_EXECUTOR_TENANT_H
#define FRMPS_SERVER_EXECUTOR_TENANT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "protocol/wire.h"
#include "server/executor/array.h"
#include "server/executor/cap.h"
#include "server/executor/constant.h"
#include "server/executor/deferred.h"
#include "server/executor/event.h"
#include "server/executor/executor.h"
#include "server/executor/graph.h"
#include "server/executor/journal.h"
#include "server/executor/module.h"
#include "server/executor/object.h"
#include "server/executor/range.h"
#include "server/executor/remains.h"
#include "server/executor/share.h"
#include "server/executor/guard_watch.h"
#include "server/executor/stream.h"
#include "shm/region.h"
#include "shm/ring.h"

/* Sleepers of a session that are recorded one by one; further sleepers are woken at every look. */
#define TENANT_WAKES 1024u

struct tenant_wake {
	uint64_t seq, since;
	uint32_t slot;
};

/* What is under way of the session's end here. Main thread. */
enum tenant_exit {
	TENANT_STAYS,
	TENANT_DETACHES, /* DetachSession; a CloseSession waits behind it */
	TENANT_CLOSES,	 /* CloseSession */
	TENANT_IS_GONE,	 /* out of the registry: the regions may be unmapped as well */
};

struct tenant {
	struct executor *executor;
	uint64_t id;
	char program[64];
	int32_t pid;
	bool replays; /* recovery policy */
	_Atomic unsigned references;
	TAILQ_ENTRY(tenant) link; /* registry */

	/* Set by OpenSession, constant then. */
	struct shm_view view;
	int doorbell;
	int server_fd; /* of the region that executors write: places of graphs are mapped singly */
	uint64_t window_base, device_bytes, host_bytes;
	uint64_t text;	      /* address of its kernels' text; 0: it does not look there */
	uint32_t scratch;     /* index of its word */
	_Atomic bool aliased; /* some memory is mapped at two addresses */
	bool has_scratch;
	uint32_t pieces;      /* of the timelines that are registered (stream_reach_words()) */
	uint64_t arena_parts; /* bits: those that are registered (arena.h). Serving thread, later the module
			       * thread */

	/* Addresses for device memory: that part of the session's window, and `further` windows;
	 * the same for pinned memory. Exact. Main thread, at the end the module thread. */
	struct range_set windows, host_windows;
	word32 further, host_further;

	/* Memory that commands may name. Locked inside. */
	struct range_set device, host, globals;	 /* merging */
	struct range_set device_maps, host_maps; /* exact: main thread; see memory.c for the module thread */
	/* exact, main thread: device memory that is being mapped or unmapped; and requests that
	 * wait until that is over */
	struct range_set changing;
	unsigned changes_queued;
	struct range_set unpinning; /* exact: freed, but still pinned (deferred.c) */
	struct deferred_free deferred;

	struct guard *guard; /* NULL: none. Main thread, at the end the module thread */
	struct guard_use guard_use;

	struct module_table modules;
	word64 leaves[SHM_MODULES / 64]; /* bits: modules whose kernels can leave residual state */
	struct constant_set constants;
	struct graph_table graphs;
	struct array_table arrays;
	struct object_table objects;
	struct event_table events;

	/* Main thread writes. */
	word32 generation;	     /* of this executor's service; 0: not served yet */
	struct serve_thread *thread; /* NULL: not served */
	_Atomic bool closing;	     /* takes no requests any more; gate.c looks as well */
	enum tenant_exit exit;
	word32 carrying; /* requests that wait for carriers (carry.h), which count down */
	/* The serving thread has called for the session's memory since that last began to leave the
	 * device, at which the main thread clears the word. */
	word32 called;
	uint64_t blocker; /* the session that had the serving thread at the latest report (drain.c) */

	/* Main thread asks, serving thread answers: see drain.c. Also written at attach (served =
	 * 1) and detach. */
	word32 served;
	struct serve_order orders[2]; /* to detach, to attach; under the serving thread's lock */
	word64 asked, answered;
	word32 slots; /* streams from here on never had a command on the device; serving thread writes */
	word64 sms;   /* for the next kernels: a group of the backend, or 0. As `cap` */

	/* Serving thread, from here on. */
	TAILQ_ENTRY(tenant) served_link;
	struct ring_reader ring;
	struct shm_timeline *timeline;
	struct stream *streams; /* SHM_STREAMS; zero from `known` on. Go through tenant_stream() */
	uint32_t known;
	struct journal journal;
	struct stream_list held, unmarked, watched, timed;
	struct range_cache device_cache[2], host_cache[2], global_cache[2]; /* [0] written, [1] read */
	struct backend_stream *poll_stream;				    /* hold.c */
	struct stream *poller; /* stream whose word is being read */
	struct tenant_wake wakes[TENANT_WAKES];
	uint32_t wake_count;
	bool wakes_overflow;
	bool stopped; /* never serve again */
	bool leaving; /* detach as soon as possible */
	bool choked;  /* the journal is full */
	uint64_t choked_at;
	uint64_t busy_at; /* ns: when a command was last taken from the ring, or issued */
	uint64_t now;	  /* ns: of this turn */
	struct share share;
	struct cap cap;
	uint64_t timed_at;	       /* ns: when a timed event was recorded */
	uint64_t watch_at, queried_at; /* ns; for sentry.c, as the next */
	unsigned watch_failures;
};

struct tenant *tenant_ref(struct tenant *tenant);
/** Frees the private memory with the last reference. */
struct tenant *tenant_unref(struct tenant *tenant);

/** A tenant without any mapping. NULL when out of memory. */
struct tenant *tenant_new(struct executor *executor, uint64_t id);

/** Makes the streams of the slots below `count` known. Serving thread, main thread before. */
void tenant_know_streams(struct tenant *tenant, uint32_t count);
/** The stream of a slot below SHM_STREAMS. The same threads. */
static inline struct stream *tenant_stream(struct tenant *tenant, uint32_t slot)
{
	if (slot >= tenant->known)
		tenant_know_streams(tenant, slot + 1);
	return &tenant->streams[slot];
}

/** Return: true if a command may touch these bytes; `writes` picks the cache. Serving thread. */
bool tenant_admits(struct tenant *tenant, uint64_t address, uint64_t bytes, bool writes);
/** The same without a cache. Any thread. */
bool tenant_admits_anywhere(struct tenant *tenant, uint64_t address, uint64_t bytes);
/** Return: true if the bytes lie in one of the windows for the session's pinned memory. Any
 * thread. */
bool tenant_has_host_window(struct tenant *tenant, uint64_t address, uint64_t bytes);
/** The same for an address, without a lock for most addresses. */
static inline bool tenant_is_host(struct tenant *tenant, uint64_t address)
{
	/* Pairs with the release in count_further() of memory.c. */
	return address - (tenant->window_base + tenant->device_bytes) < tenant->host_bytes ||
	       (word_acquire(&tenant->host_further) && tenant_has_host_window(tenant, address, 1));
}
/** Return: true if the address lies in the device part of the window. */
static inline bool tenant_is_device(const struct tenant *tenant, uint64_t address)
{
	return address - tenant->window_base < tenant->device_bytes;
}
/** Return: true if the bytes lie in one of the windows for the session's device memory. Any
 * thread. */
bool tenant_has_window(struct tenant *tenant, uint64_t address, uint64_t bytes);

/**
 * The one way out for a tenant that broke the rules: one log line, Offence to the daemon, CLOSED
 * for the program; no command of the tenant is served from here on. Serving thread, or main thread
 * while the tenant is not served.
 */
void tenant_offend(struct tenant *tenant, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Ends the loops of a session's graphs when the session has ended. A kernel that faulted in a loop
 * would fault again and again. Any thread. */
void tenant_end_loops(struct tenant *tenant);

/**
 * Notifies the program of the session's end, but once: two threads may have different reasons. Any
 * thread, also with tenants_lock.
 */
void tenant_tell_end(struct tenant *tenant, enum shm_session_state state, CUresult code, const char *reason);

/** The same for a fault of the session with that number, without tenants_lock. Return: true if the
 * session is served here */
bool tenant_tell_fault_of(struct executor *executor, uint64_t id, CUresult code, const char *reason);

/** tenant_tell_end(), and ends the service. The threads of tenant_offend(). */
void tenant_end(struct tenant *tenant, enum shm_session_state state, CUresult code, const char *reason);

/** Notes an error of a command without a waiting caller. Serving thread. */
void tenant_late_error(struct tenant *tenant, CUresult code);

/** Return: true if an issued command of the session is not known done. Any thread: reads shared
 * words only. */
bool tenant_is_busy(const struct tenant *tenant);

/** Return: true if work of any session may be on the device; otherwise the executor is a standby.
 * Any thread. */
bool tenant_is_any_served(struct executor *executor);

/** Return: true if the session goes on: the daemon may hold, pause, suspend or close the session
 * before the executor has the message; and a thread of the driver may make it doubtful (contain.c).
 * Completions that were seen before the call are then real, and of no kernel that faulted: the
 * doubt is read first, because a session whose kernel faulted has its end before the doubt ends.
 * Any thread. */
static inline bool tenant_is_running(const struct tenant *tenant)
{
	struct shm_server_header *server = tenant->view.server;

	return !word_acquire(&server->doubtful) && word_acquire(&server->state) == SHM_SESSION_RUNNING &&
	       !(word_relaxed(&server->share) & (SHM_SHARE_PAUSED | SHM_SHARE_AWAY));
}

/** Return: true if the session's memory is not all on the device, and the session would go on with
 * it. Any thread. */
static inline bool tenant_lacks_memory(const struct tenant *tenant)
{
	struct shm_server_header *server = tenant->view.server;

	return word_acquire(&server->state) == SHM_SESSION_RUNNING &&
	       (word_relaxed(&server->share) & (SHM_SHARE_PAUSED | SHM_SHARE_AWAY)) == SHM_SHARE_AWAY;
}

static inline struct backend_ops const *tenant_ops(const struct tenant *tenant)
{
	return tenant->executor->ops;
}

#endif
