// The state of initialisation of the process and of its sessions, their sticky errors, and the fork
// check. cuInit creates it; the library never tears it down (the kernel closes descriptors at exit,
// so destructors that run late find everything in place).

#ifndef FRMPS_CLIENT_STATE_PROCESS_H
#define FRMPS_CLIENT_STATE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct session;

/**
 * First line of every entry point that needs an initialised driver and a session, and names no
 * device. The thread works in the session of its current context from here on, else in the first
 * one that is open, else in that of the first device, which the call opens.
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_INITIALIZED before cuInit and in a forked child;
 * CUDA_ERROR_NOT_PERMITTED in a host function or a callback, which must not wait; errors of the
 * session's start. Never the sticky error: process_enter_context() returns that.
 */
CUresult process_enter(void);

/** As process_enter(), for entry points that do without a session: questions about devices, and
 * whatever belongs to no device. */
CUresult process_enter_early(void);

/**
 * First line of every entry point that works on the current context: the thread works in its
 * session from here on. As process_enter_early(), then the sticky error of a fault or a lost
 * service of that session, then CUDA_ERROR_INVALID_CONTEXT if the thread has no current context
 * (CUDA_ERROR_CONTEXT_IS_DESTROYED if it is destroyed).
 */
CUresult process_enter_context(void);

/**
 * As process_enter_context(), for entry points on an object of the program: a stream or an event.
 * @has_context: the object has its own context, so the thread needs no current context
 * @session: of the object, in which the thread then works; NULL: it has none, or is not valid
 */
CUresult process_enter_object(bool has_context, struct session *session);

/**
 * As process_enter_object(), for the few calls that a host function may make, where there is no
 * context. These calls must not wait there.
 */
CUresult process_enter_host(bool has_context, struct session *session);

/** The sticky error of the calling thread's session, or CUDA_SUCCESS. A relaxed load. */
CUresult process_error(void);
CUresult process_session_error(const struct session *session);

/**
 * Makes an error of a session sticky; the first error stays. Logs it once with its reason.
 * Return: the sticky error.
 */
CUresult process_fail(struct session *session, CUresult code, const char *reason);

/**
 * Initialises the driver for the process, once: later calls return CUDA_SUCCESS at once.
 * @begin: connects to the service; never runs in two threads at a time. After a failure, the next
 * call tries again. @ret_has_session: whether the session of device 0 is open
 * @open: opens the session of a device, for process_open(); never runs in two threads at a time
 * Return: CUDA_SUCCESS, CUDA_ERROR_NOT_INITIALIZED in a forked child, errors of `begin`
 */
CUresult process_start(CUresult (*begin)(bool *ret_has_session), CUresult (*open)(int ordinal));

/**
 * Opens the session of a device, once, and lets the calling thread work in it. After a failure, the
 * next call tries again. @ordinal: valid
 * Return: CUDA_SUCCESS, errors of process_enter_early() and of `open`
 */
CUresult process_open(int ordinal);

#endif
