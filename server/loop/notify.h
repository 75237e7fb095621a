// Tells the service manager how the service does, by its documented datagram protocol.

#ifndef FRMPS_SERVER_LOOP_NOTIFY_H
#define FRMPS_SERVER_LOOP_NOTIFY_H

/**
 * Sends a state such as "READY=1" to $NOTIFY_SOCKET, where the process may as its parent. Daemon
 * only.
 * Return: 0, also when there is no service manager; -errno
 */
int notify_manager(const char *state);

#endif
