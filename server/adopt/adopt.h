// A new daemon becomes what the dead one was. See holder.c for the design. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_ADOPT_ADOPT_H
#define FRMPS_SERVER_ADOPT_ADOPT_H

struct daemon;
struct legacy;
struct wire_reply;
struct worker;

/**
 * Rebuilds everything from the records and lets it go on. The daemon is as daemon_init() left it.
 * Return: 0, or -1 after an error line: the service cannot go on.
 */
int adopt(struct daemon *daemon, const struct legacy *legacy);

/**
 * An answer that nobody waits for, to a request of an earlier life. Device memory that no record
 * knows came too late for its session: it goes back to the keeper.
 */
void adopt_unclaimed(struct worker *worker, const struct wire_reply *reply);

#endif
