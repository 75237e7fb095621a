// The latest errors that the library reported, for programs that ask (cuLogs*). NVIDIA's driver
// records every call that fails; the library records the messages that it would write to standard
// error: refusals with their reasons, faults, a lost service. Any thread.

#ifndef FRMPS_CLIENT_STATE_LOGBOOK_H
#define FRMPS_CLIENT_STATE_LOGBOOK_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/**
 * Records a message and passes it to the program's callbacks. Never waits: the message is lost if
 * another thread holds the lock. @text: a line without its end
 */
void logbook_note(const char *text, size_t length);

/** CUDA_ERROR_OUT_OF_MEMORY when too many are registered. */
CUresult logbook_register(CUlogsCallback callback, void *data, CUlogsCallbackHandle *ret_handle);
/** CUDA_ERROR_INVALID_VALUE for an unknown handle. */
CUresult logbook_unregister(CUlogsCallbackHandle handle);

/** Number of the next message. */
CUlogIterator logbook_next(void);

/**
 * Writes messages from a number on, one per line, and a NUL.
 * @from: the first message; messages that were overwritten are left out
 * @size: of the buffer; if not all fit: the latest messages, behind a line about the omission
 * @ret_next: number after the last message
 * Return: length without the NUL; SIZE_MAX: there are messages, and none fits
 */
size_t logbook_write(CUlogIterator from, char *buffer, size_t size, CUlogIterator *ret_next);

/* Room for all messages. */
#define LOGBOOK_BYTES 25600u

#endif
