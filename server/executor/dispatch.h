// From the journal to the backend. Serving thread.

#ifndef FRMPS_SERVER_EXECUTOR_DISPATCH_H
#define FRMPS_SERVER_EXECUTOR_DISPATCH_H

#include "protocol/command.h"
#include "server/executor/tenant.h"

/* Outcomes of dispatch_issue() beside 0. */
#define DISPATCH_E_HELD 1 /* the stream is held; the command was not issued */
#define DISPATCH_E_STOP 2 /* the session or the whole context is at its end */

/** Issues the stream's next command: issued + 1, which lies at the cursor. */
int dispatch_issue(struct tenant *tenant, struct stream *stream);

/** Counts the stream's next command, which waited in software, as done: everything before it is. */
void dispatch_settle(struct tenant *tenant, struct stream *stream);

/** Issues up to `budget` waiting commands of a stream that is not held. Return: how many. */
unsigned dispatch_backlog(struct tenant *tenant, struct stream *stream, unsigned budget);

#endif
