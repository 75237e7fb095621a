// Closing sockets of programs. A program can send any descriptor, and whoever closes the last copy
// of it may have to wait for as long as its maker likes: a socket that lingers, a file of a file
// system that is a program. So the service takes no descriptor from a program, and where the kernel
// can be told so, none can be sent. Where it cannot, a packet with descriptors stays on its socket,
// and a process of its own throws both away. Daemon, loop thread only.

#ifndef FRMPS_SERVER_LOOP_DISCARD_H
#define FRMPS_SERVER_LOOP_DISCARD_H

/** No descriptors can be sent to a listening socket's connections, where the kernel can do that
 * (Linux 6.16). */
void discard_refuse(int listener);
/** Closes a socket. What is unread on it goes, and nothing more can be sent to it, whoever else
 * holds it. */
void discard_socket(int socket);

#endif
