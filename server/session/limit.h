// Limits of a context (cuCtxSetLimit) that others of its executor do not have: the session goes on
// in an executor of its own, where it gets them. Where it cannot move, the limit is refused.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_LIMIT_H
#define FRMPS_SERVER_SESSION_LIMIT_H

struct request;

/** A limit is asked for, and the session is served beside others. May end the request. */
void limit_begin(struct request *request);

#endif
