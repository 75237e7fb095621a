// Guests: connections that are no sessions, namely visitors and operators. Each user has a bounded
// number of both (visitor.c, caller.h). This file has the bound for all users: connections that
// many users leave open take no file from sessions, and keep nobody out. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DOOR_GUESTS_H
#define FRMPS_SERVER_DOOR_GUESTS_H

struct daemon;

/** A connection comes: at the bound, the user with the most guests loses a guest. */
void guests_make_room(struct daemon *daemon);

#endif
