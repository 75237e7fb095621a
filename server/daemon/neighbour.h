// The daemons of the service's other devices. Lending of memory (lending.h) and moves of sessions
// (depart.h) connect to them. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_NEIGHBOUR_H
#define FRMPS_SERVER_DAEMON_NEIGHBOUR_H

struct daemon;

/** Connects to the daemon of another device, without waiting. Return: a socket, or -errno */
int neighbour_connect(const struct daemon *daemon, unsigned device);

#endif
