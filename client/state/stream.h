// Streams of this program: one entry per slot of the session's stream table, in a table that is never freed.
// A handle is a number made of the slot and a count of its uses, so a handle of a destroyed stream is
// refused, not followed.
//
// Slot 0 is the legacy default stream of the process. Slots are taken from the lowest free one and used again
// once their last command is done. Fields say who guards them: "ring" means the ring lock of submit.c.

#ifndef FRMPS_CLIENT_STATE_STREAM_H
#define FRMPS_CLIENT_STATE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "shm/layout.h"
#include "shm/order.h"

struct client_stream {
	word64 handle; /* 0 while the slot is nobody's; written under the table's lock */
	uint64_t uses; /* table: makes the handles of one slot differ */
	uint64_t born; /* ring: `seq` when this use of the slot began */
	uint32_t slot;
	uint32_t flags; /* CU_STREAM_NON_BLOCKING or 0 */
	int32_t priority;
	/* Takes part in the rules of the legacy default stream. Written when the slot is taken; others look at
	 * it meanwhile. */
	_Atomic bool blocking;
	bool closed;		      /* ring: its STREAM_DESTROY was sent, or needs not be */
	const struct thread *claimed; /* ring: who alone may submit to it now; NULL: everybody */
	/* NULL: a default stream. Written when the slot is taken; others look at it meanwhile. */
	_Atomic(CUcontext) context;
	uint64_t id;
	word64 last; /* ring writes: highest seq that the program knows of: what a synchronisation waits for
		      */
	word64 seq;  /* ring writes: highest seq used, with what the shim added */
	word32 capturing;      /* graph lock: commands do not go to the ring (graph/capture.h) */
	uint64_t marked;       /* ring: highest seq behind which a mark was asked for */
	uint64_t done;	       /* ring: a done value that was true once */
	uint64_t joined;       /* ring: highest seq of the legacy stream that this one waits for */
	uint64_t early_joined; /* ring: early return (join.h) that this stream waits for */
	bool unjoined; /* ring: has work that the legacy stream does not wait for yet; is on the list */
	struct client_stream *next_unjoined;
	struct client_stream *next_free;
};

/**
 * The stream behind a handle of the program.
 * @per_thread: what handle 0 means: the calling thread's default stream, or the legacy one
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_OUT_OF_MEMORY (a thread's default stream is
 * made here)
 */
CUresult stream_resolve(CUstream handle, bool per_thread, struct client_stream **ret_stream);

/** The stream of a slot below SHM_STREAMS, used or not. */
struct client_stream *stream_slot(uint32_t slot);

/** Slots at and above this one were never used. */
uint32_t stream_slots_used(void);

/** The program's handle of a stream. */
static inline CUstream stream_handle(const struct client_stream *stream)
{
	return (CUstream)(uintptr_t)word_acquire(&((struct client_stream *)stream)->handle);
}

/** A new stream. Priority is clamped. CUDA_ERROR_OUT_OF_MEMORY when all slots are in use. */
CUresult stream_create(
	CUcontext context, uint32_t flags, int32_t priority, struct client_stream **ret_stream);

/** Ends a stream; its work goes on. CUDA_ERROR_INVALID_HANDLE for default streams and the second time. */
CUresult stream_destroy(struct client_stream *stream);

/** The same for a thread's default stream, when the thread ends. */
void stream_retire(struct client_stream *stream);

/** Ends every stream of a context. */
void stream_release_context(CUcontext context);

/** Start of the table: makes the legacy default stream. Called by process start. */
void stream_table_init(void);

#endif
