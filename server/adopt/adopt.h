// A new daemon takes the place of the dead one. See holder.c for the design. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_ADOPT_ADOPT_H
#define FRMPS_SERVER_ADOPT_ADOPT_H

struct daemon;
struct legacy;

/**
 * Rebuilds everything from the records and resumes work. The daemon is as daemon_init() left it.
 * Return: 0, or -1 after an error line: the service cannot go on.
 */
int adopt(struct daemon *daemon, const struct legacy *legacy);

#endif
