// Noticing that the session is over: a verdict in the shared state, or a service that vanished.
// Both become the sticky error of the process (process.h). Any thread; reads memory and polls,
// never waits.

#ifndef FRMPS_CLIENT_LINK_LOST_H
#define FRMPS_CLIENT_LINK_LOST_H

#include "protocol/cuda_abi.h"

/** The verdict in the session's state; CUDA_SUCCESS while it is served or held. Memory only. */
CUresult lost_verdict(void);

/** The same, and whether the service hung up. One system call. */
CUresult lost_check(void);

/** The same for what a program calls again and again: it asks the system only if nobody did for a
 * while. */
CUresult lost_glance(void);

/** @ended: is called whenever somebody sees a verdict, by that thread, which may hold locks. Any
 * thread */
typedef void lost_ended_fn(void);
void lost_watch(lost_ended_fn *ended);

/** The service is gone, or says so. Return: the sticky error, which may be an earlier one or a
 * verdict. */
CUresult lost_report(const char *how);

#endif
