// Text that the program's kernels print, and messages of assertions that fail in kernels: the
// reading end of a session's ring (shm/text.h). A program without such kernels has no ring.
//
// Text comes out when the driver would print it: when the program synchronises with any context,
// stream or event, at synchronous copies, when the program loads or unloads modules or frees
// memory, and when a context ends. Never between those, so that it stays in order with the
// program's own output. Unlike the driver's, none of these calls waits for other streams because of
// text. After the session's end the rest comes out when the program first gets the error, or at its
// next call if a thread held standard output then.

#ifndef FRMPS_CLIENT_TEXT_TEXT_H
#define FRMPS_CLIENT_TEXT_TEXT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct session;
struct shm_text;

/* Of a session. */
struct text {
	pthread_mutex_t lock;
	struct shm_text *_Atomic ring; /* NULL: none */
	uint64_t bytes, mapped;	       /* the ring's size; mapped bytes, with the head: guarded by lock */
	word64 taken;		       /* position of the reader */
	word32 settled;		       /* latest generation before which no record is unfinished */
	word32 prints;		       /* the ring is for printf() of kernels, too */
};

/** Called by session start. */
void text_start(void);

/* The default size. */
#define TEXT_BYTES_DEFAULT (UINT64_C(8) << 20)

/**
 * Makes the ring of the calling thread's session for text of kernels, unless it exists. Must
 * precede the first kernel that prints.
 * @wish: bytes of text that the program wants room for
 * Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_INVALID_VALUE: an assertion has failed
 */
CUresult text_open(uint64_t wish);

/**
 * Changes the ring's size. Return: as text_open(); CUDA_ERROR_INVALID_VALUE: a kernel has printed
 */
CUresult text_resize(uint64_t wish);

/**
 * Makes a ring for assertions alone, unless a ring exists. Return: CUDA_SUCCESS,
 * CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult text_open_small(void);

/** True if there is a ring for text of kernels. */
bool text_is_open(void);

/** True if a kernel has printed. */
bool text_is_used(void);

/**
 * Writes a session's new text to standard output and, for assertions, to standard error. Costs some
 * loads if there is none.
 */
void text_flush(struct session *session);

/**
 * As text_flush(), when no work of the session runs: drops records that an executor's end cut off.
 */
void text_settle(struct session *session);

#endif
