// Obstacles for a session that leaves the device: in a drain (daemon/device_drain.h), or for
// another device (daemon/depart.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_LEAVING_H
#define FRMPS_SERVER_STANDBY_LEAVING_H

#include <stdint.h>

struct session;

/**
 * Checks if an executor that starts without the session's memory could make all of the session.
 * Later commands of the session may change the answer.
 * Return: NULL, or the obstacle (static text)
 */
const char *leaving_refuses(const struct session *session);
/** Memory on the device that the session owns (holdings.h) and takes along, bytes. */
uint64_t leaving_bytes(const struct session *session);

#endif
