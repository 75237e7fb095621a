// Detection of a session's end: a verdict in the shared state, or a service that vanished. Both
// become the sticky error of the session (process.h). Any thread; reads memory and polls, never
// waits.

#ifndef FRMPS_CLIENT_LINK_LOST_H
#define FRMPS_CLIENT_LINK_LOST_H

#include "protocol/cuda_abi.h"

struct session;

/**
 * The verdict in the session's state; CUDA_SUCCESS while the session is served or held. Reads
 * memory only.
 */
CUresult lost_verdict(struct session *session);

/**
 * As lost_verdict(); also checks that the service has not closed the connection. Makes a system
 * call.
 */
CUresult lost_check(struct session *session);

/**
 * As lost_check(), for calls that a program repeats: makes the system call only if no thread did so
 * recently.
 */
CUresult lost_glance(struct session *session);

/** @ended: called by any thread that sees a session's verdict; that thread may hold locks. Any
 * thread */
typedef void lost_ended_fn(struct session *session);
void lost_watch(lost_ended_fn *ended);

/**
 * Reports that the session's service is lost. Return: the sticky error, which may be an earlier
 * error or a verdict.
 */
CUresult lost_report(struct session *session, const char *how);

#endif
