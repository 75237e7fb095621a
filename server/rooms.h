// How rooms hear of each other. See rooms.c.

#ifndef FRMPS_SERVER_ROOMS_H
#define FRMPS_SERVER_ROOMS_H

struct rooms;

/* What a daemon is started with; a test may have others. */
extern const struct rooms rooms_all;

#endif
