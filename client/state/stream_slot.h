// The table of streams of all sessions: a session's stream table has a slot of the same number,
// which no other session uses. The table is never freed. stream.h takes and frees slots. A field's
// comment names its lock: "ring" means the ring lock of submit.c, "table" the lock of stream.c. Any
// thread.

#ifndef FRMPS_CLIENT_STATE_STREAM_SLOT_H
#define FRMPS_CLIENT_STATE_STREAM_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "shm/layout.h"
#include "shm/order.h"

struct session;
struct thread;

struct client_stream {
	word64 handle;		 /* 0 while the slot is unused; written under the table's lock */
	uint64_t uses;		 /* table: makes the handles of a slot differ */
	uint64_t born;		 /* ring: `seq` when this use of the slot began */
	struct session *session; /* constant, as the slot: a slot stays with its session */
	uint32_t slot;
	uint32_t flags; /* CU_STREAM_NON_BLOCKING or 0 */
	int32_t priority;
	/* Takes part in the rules of the legacy default stream. Written when the slot is taken, and
	 * read by other threads meanwhile. */
	_Atomic bool blocking;
	bool closed;		      /* ring: its STREAM_DESTROY was sent, or is not needed */
	const struct thread *claimed; /* ring: the only thread that may submit now; NULL: all may */
	/* NULL: a default stream. Written when the slot is taken, and read by other threads
	 * meanwhile. */
	_Atomic(CUcontext) context;
	/* The green context that it is of, whose primary context is `context`; NULL: of none. As
	 * `context` */
	_Atomic(CUcontext) green;
	word64 orphan; /* the handle that it had when its green context ended */
	uint64_t id;
	word64 last;	       /* ring writes: highest seq of the program's commands, which waits cover */
	word64 seq;	       /* ring writes: highest seq used, the library's own commands included */
	word32 capturing;      /* graph lock: commands do not go to the ring (graph/capture.h) */
	uint64_t marked;       /* ring: highest seq with a requested mark */
	uint64_t done;	       /* ring: an earlier value of the completion word */
	uint64_t joined;       /* ring: highest seq of the legacy stream that this stream waits for */
	uint64_t early_joined; /* ring: early return (join.h) that this stream waits for */
	bool unjoined; /* ring: has work that the legacy stream does not wait for yet; is on the list */
	struct client_stream *next_unjoined;
	struct client_stream *next_free;
	struct client_stream *next_own; /* the same thread's default stream of another session */
};

extern struct client_stream stream_table[SHM_STREAMS];

/** The stream of a slot below SHM_STREAMS, used or not. */
static inline struct client_stream *stream_slot(uint32_t slot)
{
	return &stream_table[slot];
}

/** Slots from here on were never used. */
uint32_t stream_slots_used(void);

/** A never used slot for a session, or NULL. One call at a time. @bound: of the session's slots */
struct client_stream *stream_slot_new(struct session *session, uint32_t bound);

/** True for streams of a context, as the program sees it: those of a primary context include those
 * of its green contexts. Default streams of the session and of its threads belong to all contexts
 * but green ones. */
bool stream_is_in(const struct client_stream *stream, CUcontext context);

/** The program's handle of a stream. */
static inline CUstream stream_handle(const struct client_stream *stream)
{
	return (CUstream)(uintptr_t)word_acquire(&((struct client_stream *)stream)->handle);
}

#endif
