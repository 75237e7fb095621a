// Limits of a context (cuCtxSetLimit) that other sessions of the executor do not have: the session
// moves to an executor of its own and gets the limits there. If the session cannot move, the limit
// is refused. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_LIMIT_H
#define FRMPS_SERVER_DAEMON_LIMIT_H

struct request;

/** A program requests a limit while an executor serves other sessions, too. May end the request. */
void limit_begin(struct request *request);

#endif
