// Sessions: a process has one with the service of each device that it works on. All state that
// belongs to a session lies in its struct, in one part for each room; the room's header declares
// the part, and only the room's files access it. What a program names by a handle or an address
// (contexts, streams, events, modules, ranges) is in tables of the process, and knows its session.
//
// A thread works in one session at a time (session_self()). Each entry point chooses it: that of
// the current context, or of the object that the call names. Functions below work in that session,
// except for those that get a stream: a stream's commands and waits are its own session's.
//
// Sessions are never closed: the kernel does that when the process ends.

#ifndef FRMPS_CLIENT_STATE_SESSION_H
#define FRMPS_CLIENT_STATE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "client/graph/memory.h"
#include "client/link/connect.h"
#include "client/link/control.h"
#include "client/stage/arena.h"
#include "client/state/device.h"
#include "client/state/host.h"
#include "client/state/limit.h"
#include "client/state/mempool.h"
#include "client/state/module.h"
#include "client/state/object.h"
#include "client/state/pool.h"
#include "client/state/ranges.h"
#include "client/state/shared_event.h"
#include "client/state/space.h"
#include "client/state/stream.h"
#include "client/submit/callback.h"
#include "client/submit/gate.h"
#include "client/submit/submit.h"
#include "client/text/text.h"
#include "client/trace/device.h"
#include "protocol/cuda_abi.h"
#include "protocol/place.h"
#include "shm/order.h"

struct session {
	/* process.c */
	word32 life;  /* enum session_life */
	word32 error; /* CUresult: the sticky error; written once */
	/* The rooms. */
	struct client_device device; /* as the Welcome describes it */
	struct connection connection;
	struct control control;
	word64 glanced; /* link/lost.c: ns of the latest check, by any thread */
	/* Written by each command: in cache lines of its own. */
	_Alignas(64) struct ring ring;
	_Alignas(64) struct callbacks callbacks;
	struct gates gates;
	word32 late_seen; /* submit/wait.c: late errors that were reported or are being reported */
	word32 late_own;  /* the same: CUresult of another session's that is to be reported */
	word32 ferries;	  /* stage/ferry.c: copies under way that use the session */
	struct arena arena;
	struct text text;
	struct streams streams;
	struct space space;
	struct host host;
	struct pool memory; /* state/memory.c */
	struct mempools mempools;
	struct shared_events shared_events;
	struct module_ids module_ids;
	struct range_map globals; /* state/ranges.c */
	struct objects objects;
	struct graph_figures graphs;
	struct limits limits;
	struct trace_clocks clocks;
};

/* UNUSED ──session_begin()──► BEGUN ──process_open()──► OPEN. From BEGUN on the connection has valid
 * descriptors or none, which a forked child closes; the rest is for threads that find it OPEN. */
enum session_life { SESSION_UNUSED, SESSION_BEGUN, SESSION_OPEN };

/* By the ordinal of the device. */
extern struct session sessions[PLACE_DEVICES];

/* The calling thread's session; never NULL. Read and written only here. The library stays loaded,
 * so its few bytes may lie where an access needs no call. */
extern __thread struct session *session_now __attribute__((tls_model("initial-exec")));

/** The session that the calling thread works in. Before the first one is open: one that is not. */
static inline struct session *session_self(void)
{
	return session_now;
}

/** The calling thread works in this session from here on. */
static inline void session_use(struct session *session)
{
	session_now = session;
}

/** As session_use(). Return: the session before, for session_leave() */
static inline struct session *session_enter(struct session *session)
{
	struct session *before = session_now;

	session_now = session;
	return before;
}

static inline void session_leave(struct session *const *before)
{
	session_now = *before;
}

/** To the end of the block the thread works in this session. */
#define SESSION_SCOPE(which)                                                                                 \
	__attribute__((cleanup(session_leave))) struct session *const session_before_ = session_enter(which)

/** The ordinal of the session's device. */
static inline int session_ordinal(const struct session *session)
{
	return (int)(session - sessions);
}

static inline bool session_is_open(struct session *session)
{
	return word_acquire(&session->life) == SESSION_OPEN;
}

/** The next open session behind one; NULL: there is none. @session: NULL: the first */
struct session *session_next(struct session *session);

/** For each open session. */
#define SESSION_FOREACH(session)                                                                             \
	for (struct session *session = session_next(NULL); session; session = session_next(session))

/** Prepares a session for its connection, once. One call at a time. */
void session_begin(struct session *session);

/** The open session whose window holds an address; NULL: none does. */
struct session *session_holding(uint64_t address);

/** True if a session of this process has the number: no two devices of a service give the same. */
bool session_is_own(uint64_t number);

/** The calling thread works in the session whose window holds an address, if there is one. */
void session_use_of(uint64_t address);

#endif
