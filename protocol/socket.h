// Packets with descriptors on a SOCK_SEQPACKET socket: the transport under wire.h, for every
// process of the project. Blocking or not follows the socket. No state; a single caller per
// direction of a socket at a time.

#ifndef FRMPS_PROTOCOL_SOCKET_H
#define FRMPS_PROTOCOL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/wire.h"

/* A received packet. `bytes` is aligned for wire_decode(). */
struct packet {
	_Alignas(8) uint8_t bytes[WIRE_PACKET_MAX];
	size_t length;
	int fds[WIRE_FDS_MAX]; /* owned by the holder of the packet, close-on-exec; -1 for none */
	unsigned fd_count;
};

/* Outcomes of packet_receive() beside 0. */
#define PACKET_E_CLOSED 1 /* the peer closed the socket (or sent an empty packet, which looks the same) */
#define PACKET_E_AGAIN	2 /* no packet (non-blocking socket), or a full buffer when sending */
/* Receiving: truncated or with too many descriptors, which were closed; sending: not encodable */
#define PACKET_E_INVALID 3
/* Receiving: the bytes are there; this process has no room for their descriptors, which are
 * lost. */
#define PACKET_E_NO_FDS 4

/** Receives a packet. Return: 0, a PACKET_E_*, or -errno. */
int packet_receive(int socket, struct packet *packet);
/**
 * As packet_receive(), but the packet stays on the socket: each call receives it again, with new
 * descriptors, until packet_discard() removes it. For a receiver that must not lose a packet if it
 * dies while handling that.
 */
int packet_peek(int socket, struct packet *packet);
/** As packet_peek(), without descriptors: a packet with descriptors is PACKET_E_INVALID. */
int packet_peek_bare(int socket, struct packet *packet);
/** Removes the first packet from the socket. */
void packet_discard(int socket);
/** Closes the descriptors that were not taken. */
void packet_close_fds(struct packet *packet);
/**
 * Takes descriptor `index` out of the packet; -1 for an absent descriptor. The caller closes it.
 */
int packet_take_fd(struct packet *packet, unsigned index);
/**
 * Sends an encoded packet, with at most WIRE_FDS_MAX descriptors (still owned by the caller).
 * Return: 0, PACKET_E_*, -errno.
 */
int packet_send(int socket, const uint8_t *bytes, size_t length, const int *fds, unsigned fd_count);
/** Receives a packet with a message, which points into the packet. Return: as packet_receive();
 * PACKET_E_INVALID, without descriptors, if it is no message */
int message_receive(int socket, struct packet *packet, struct wire_message *ret_message);
/** Encodes and sends a message with descriptors (still owned by the caller). Return: 0, PACKET_E_*,
 * -errno.
 */
int message_send(int socket, const struct wire_message *message, const int *fds, unsigned fd_count);

/**
 * Connects to a service, blocking. @seconds: limit for each call on the socket; 0: none. The caller
 * closes *ret_fd. Return: 0 or -errno; -ENAMETOOLONG for a path without room in an address.
 */
int socket_connect(const char *path, unsigned seconds, int *ret_fd);

/**
 * True if only root and this user can have put a socket into a directory: any user may be the first
 * to make a directory in /tmp. Any thread.
 */
bool socket_directory_is_trusted(const char *directory);

#endif
