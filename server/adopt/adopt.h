// A new daemon takes the place of the dead one. See holder.c for the design. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_ADOPT_ADOPT_H
#define FRMPS_SERVER_ADOPT_ADOPT_H

struct daemon;
struct legacy;
struct wire_reply;
struct worker;

/**
 * Rebuilds everything from the records and resumes work. The daemon is as daemon_init() left it.
 * Return: 0, or -1 after an error line: the service cannot go on.
 */
int adopt(struct daemon *daemon, const struct legacy *legacy);

/**
 * The answer to a request of an earlier life that nobody waits for. Device memory without a record
 * came too late for its session, and goes back to the keeper.
 */
void adopt_unclaimed(struct worker *worker, const struct wire_reply *reply);

#endif
