// The shim's one process-wide object: whether the program has initialised the driver, the session
// with the service, the sticky error, and the fork check. Created by cuInit, never torn down (the
// kernel closes what is open at exit, so destructors that run late find everything in place).

#ifndef FRMPS_CLIENT_STATE_PROCESS_H
#define FRMPS_CLIENT_STATE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/**
 * First line of every entry point that needs an initialised driver.
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_INITIALIZED before cuInit and in a forked child;
 * CUDA_ERROR_NOT_PERMITTED in a host function or a callback, where nothing may wait. Never the
 * sticky error: that belongs to process_enter_context().
 */
CUresult process_enter(void);

/**
 * First line of every entry point that works on the current context: process_enter(), then the
 * sticky error of a fault or a lost service, then CUDA_ERROR_INVALID_CONTEXT when the thread has no
 * current context (or a destroyed one: CUDA_ERROR_CONTEXT_IS_DESTROYED).
 */
CUresult process_enter_context(void);

/**
 * The same for entry points on an object of the program: a stream or an event.
 * @has_context: whether the object brings its own context. The thread then needs no current one.
 */
CUresult process_enter_object(bool has_context);

/** The same for the few calls that a host function may make, where there is no context. They must
 * not wait there. */
CUresult process_enter_host(bool has_context);

/** The sticky error, CUDA_SUCCESS if there is none. One relaxed load when all is well. */
CUresult process_error(void);

/**
 * Makes an error sticky; the first one stays. Logged once with its reason.
 * Return: the sticky error.
 */
CUresult process_fail(CUresult code, const char *reason);

/**
 * Initialises the driver for the process, once: later calls return CUDA_SUCCESS at once.
 * @begin: connects to the service; no two threads are in it at a time. If it fails, the next call
 * tries again.
 * Return: CUDA_SUCCESS, CUDA_ERROR_NOT_INITIALIZED in a forked child, what `begin` returns
 */
CUresult process_start(CUresult (*begin)(void));

#endif
