// How rooms hear of each other. See rooms.c.

#ifndef FRMPS_SERVER_ROOMS_H
#define FRMPS_SERVER_ROOMS_H

struct rooms;

/* The tables of a daemon; a test may have others. */
extern const struct rooms rooms_all;

#endif
