// Waiting for another process, with a limit. No state; any thread.

#ifndef FRMPS_SERVER_AWAIT_H
#define FRMPS_SERVER_AWAIT_H

#include <stdbool.h>
#include <stddef.h>

/** Return: whether there is something to be read, or an end, within the time */
bool await_input(int fd, unsigned patience_ms);

/**
 * Reads an answer from a pipe. @patience_ms: for each part of it
 * Return: 0, -ETIMEDOUT, or -EPROTO: the answer ends too early
 */
int await_answer(int fd, unsigned patience_ms, void *ret_answer, size_t size);

#endif
