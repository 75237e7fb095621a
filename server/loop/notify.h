// Reports the service's state to the service manager, by the manager's documented datagram
// protocol.

#ifndef FRMPS_SERVER_LOOP_NOTIFY_H
#define FRMPS_SERVER_LOOP_NOTIFY_H

/**
 * Sends a state such as "READY=1" to $NOTIFY_SOCKET, in the parent's name if permitted. Daemon
 * only.
 * Return: 0, also when there is no service manager; -errno
 */
int notify_manager(const char *state);

/** The same in the caller's own name, for the service's main process. */
int notify_manager_directly(const char *state);

/** Has notify_manager() send states to a socket instead: of a service that speaks for several
 * daemons (parent.h). Children inherit that. */
void notify_through(int fd);

#endif
