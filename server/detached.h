// Threads that nobody waits for.

#ifndef FRMPS_SERVER_DETACHED_H
#define FRMPS_SERVER_DETACHED_H

#include <signal.h>

/**
 * Starts a thread. @blocked: signals that the thread must not get; NULL: all. Any thread. Return: 0
 * or -errno; then nothing was started and `argument` is the caller's.
 */
int detached_start(void *(*run)(void *), void *argument, const sigset_t *blocked);

#endif
