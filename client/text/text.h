// What the program's kernels print, and the text of assertions that fail in them: the reading end
// of its ring (shm/text.h). A program that loads no module with such kernels has none.
//
// Text comes out where the driver lets it out: when the program synchronises with a context, a
// stream or an event, whichever, at synchronous copies, when it loads or unloads modules, frees
// memory, and when a context ends. Never between those, so that it stands in the right place among
// what the program writes itself. Unlike the driver's, none of these waits for other streams
// because there is text. What is left when the session is over comes out where the program first
// hears of that, or at its next call if a thread held standard output just then.

#ifndef FRMPS_CLIENT_TEXT_TEXT_H
#define FRMPS_CLIENT_TEXT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/* Where nobody says otherwise. */
#define TEXT_BYTES_DEFAULT (UINT64_C(8) << 20)

/**
 * Makes the ring for what kernels print, unless there is one. Before the first that prints can run.
 * @wish: bytes of text that the program wants to have room for
 * Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_INVALID_VALUE: an assertion has failed
 */
CUresult text_open(uint64_t wish);

/** Changes its size. Return: as above; CUDA_ERROR_INVALID_VALUE: a kernel has printed */
CUresult text_resize(uint64_t wish);

/** Makes a ring for assertions alone, unless there is one. Return: CUDA_SUCCESS,
 * CUDA_ERROR_OUT_OF_MEMORY */
CUresult text_open_small(void);

/** Whether there is a ring for what kernels print. */
bool text_is_open(void);

/** Whether a kernel has printed. */
bool text_is_used(void);

/** Writes what has come since, on standard output and, for assertions, standard error. Some loads
 * if it is nothing. */
void text_flush(void);

/** The same when nothing of the program runs: what was cut off when an executor died is given
 * up. */
void text_settle(void);

#endif
