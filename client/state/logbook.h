// The latest things that the shim had to say of errors, for programs that ask (cuLogs*). NVIDIA's
// driver notes every call that fails; the shim notes what it would write on standard error:
// refusals with their reasons, faults, a lost service. Any thread.

#ifndef FRMPS_CLIENT_STATE_LOGBOOK_H
#define FRMPS_CLIENT_STATE_LOGBOOK_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/** Notes one message and hands it to the program's callbacks. Where another thread is at it, it is
 * lost: this never waits. @text: one line without its end */
void logbook_note(const char *text, size_t length);

/** CUDA_ERROR_OUT_OF_MEMORY when too many are registered. */
CUresult logbook_register(CUlogsCallback callback, void *data, CUlogsCallbackHandle *ret_handle);
/** CUDA_ERROR_INVALID_VALUE for what is not registered. */
CUresult logbook_unregister(CUlogsCallbackHandle handle);

/** Number of the next message. */
CUlogIterator logbook_next(void);

/**
 * Writes messages from a number on, one per line, and a NUL.
 * @from: the first one; those that are not kept any more are left out
 * @size: of the buffer; not all fit: the latest do, behind a line that says so
 * @ret_next: number behind the last one
 * Return: length without the NUL; SIZE_MAX: there are some, and none fits
 */
size_t logbook_write(CUlogIterator from, char *buffer, size_t size, CUlogIterator *ret_next);

/* Room for everything that is kept. */
#define LOGBOOK_BYTES 25600u

#endif
