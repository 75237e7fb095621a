// The daemon's children: their messages, their ends, and what these mean for the service.
// worker/worker.h has the states of a child. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_CHILDREN_H
#define FRMPS_SERVER_DAEMON_CHILDREN_H

#include <sys/types.h>

#include "server/loop/connection.h"

struct crew;
struct daemon;
struct wire_reply;
struct worker;

/** For the connections of workers, which are the context. */
connection_message_fn children_message;
connection_closed_fn children_closed;

/** The holder reports the end of a child; a child that is no worker is fine. @status: as from
 * waitpid() */
void children_reaped(struct crew *crew, pid_t pid, int status);
/** The kernel has reaped the worker's process: reads the worker's last messages, does what follows
 * from its end, frees the worker. */
void children_ended(struct worker *worker, int exit_status, int exit_signal);

/** End of the turn: does what workers have due. */
void children_settle(struct daemon *daemon);

/** The service is ready once keeper and a first executor are up: tells the service manager. Twice
 * is fine. */
void children_look_ready(struct daemon *daemon);

/** True if a child has not been reaped. */
bool children_are_there(const struct daemon *daemon);

/**
 * The answer to a request of an earlier life that nobody waits for. Device memory without a record
 * came too late for its session, and goes back to the keeper.
 */
void children_take_unclaimed(struct worker *worker, const struct wire_reply *reply);

#endif
