// Closing sockets of programs. A program can send any descriptor, and closing the last copy may
// block for as long as its maker likes: a socket that lingers, a file of a file system that is a
// program. So the service takes no descriptor from a program, and where the kernel supports that,
// the socket refuses them. Elsewhere a packet with descriptors stays on its socket, and a separate
// process discards both. Daemon, loop thread only.

#ifndef FRMPS_SERVER_LOOP_DISCARD_H
#define FRMPS_SERVER_LOOP_DISCARD_H

/** No descriptors can be sent to a listening socket's connections, where the kernel can do that
 * (Linux 6.16). */
void discard_refuse(int listener);
/** Descriptors can be sent to this socket again: the peer has proved to be of the service. */
void discard_allow(int socket);
/** Closes a socket. Unread packets are lost, and nothing more can be sent, whoever else has the
 * socket. */
void discard_socket(int socket);

#endif
