// The library's only process-wide object: the state of initialisation, the session with the
// service, the sticky error, and the fork check. cuInit creates it; the library never tears it down
// (the kernel closes descriptors at exit, so destructors that run late find everything in place).

#ifndef FRMPS_CLIENT_STATE_PROCESS_H
#define FRMPS_CLIENT_STATE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/**
 * First line of every entry point that needs an initialised driver, and may need the session: opens
 * it if there is none yet.
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_INITIALIZED before cuInit and in a forked child;
 * CUDA_ERROR_NOT_PERMITTED in a host function or a callback, which must not wait; errors of the
 * session's start. Never the sticky error: process_enter_context() returns that.
 */
CUresult process_enter(void);

/** As process_enter(), for entry points that do without a session: questions about devices, and
 * whatever belongs to no device. */
CUresult process_enter_early(void);

/**
 * First line of every entry point that works on the current context: process_enter(), then the
 * sticky error of a fault or a lost service, then CUDA_ERROR_INVALID_CONTEXT if the thread has no
 * current context (CUDA_ERROR_CONTEXT_IS_DESTROYED if it is destroyed).
 */
CUresult process_enter_context(void);

/**
 * As process_enter_context(), for entry points on an object of the program: a stream or an event.
 * @has_context: the object has its own context, so the thread needs no current context
 */
CUresult process_enter_object(bool has_context);

/**
 * As process_enter_object(), for the few calls that a host function may make, where there is no
 * context. These calls must not wait there.
 */
CUresult process_enter_host(bool has_context);

/** The sticky error, or CUDA_SUCCESS. A single relaxed load in the normal case. */
CUresult process_error(void);

/**
 * Makes an error sticky; the first error stays. Logs it once with its reason.
 * Return: the sticky error.
 */
CUresult process_fail(CUresult code, const char *reason);

/**
 * Initialises the driver for the process, once: later calls return CUDA_SUCCESS at once.
 * @begin: connects to the service; never runs in two threads at a time. After a failure, the next
 * call tries again. @ret_has_session: whether the session is open
 * @open_any: what process_enter() calls to open the session
 * Return: CUDA_SUCCESS, CUDA_ERROR_NOT_INITIALIZED in a forked child, errors of `begin`
 */
CUresult process_start(CUresult (*begin)(bool *ret_has_session), CUresult (*open_any)(void));

/**
 * Opens the session, once: later calls return CUDA_SUCCESS at once.
 * @open: never runs in two threads at a time; gets `device`. After a failure, the next call tries
 * again.
 * Return: CUDA_SUCCESS, errors of process_enter_early() and of `open`
 */
CUresult process_open(CUresult (*open)(int device), int device);

#endif
