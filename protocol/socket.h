// Packets with descriptors on a SOCK_SEQPACKET socket: the transport under wire.h, for every
// process of the house. Blocking or not follows the socket. No state; one caller per direction of a
// socket at a time.

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
	int fds[WIRE_FDS_MAX]; /* owned by the holder of the packet, close-on-exec; -1 where none */
	unsigned fd_count;
};

/* Outcomes of packet_receive() beside 0. */
#define PACKET_E_CLOSED 1 /* the peer hung up (or sent an empty packet, which nobody can tell apart) */
#define PACKET_E_AGAIN	2 /* nothing there (non-blocking socket), or a full buffer when sending */
/* Receiving: truncated or with too many descriptors, which were closed; sending: not encodable */
#define PACKET_E_INVALID 3
/* Receiving: the bytes are there; this process has no room for their descriptors, and gets none. */
#define PACKET_E_NO_FDS 4

/** Receives one packet. Return: 0, a PACKET_E_*, or -errno. */
int packet_receive(int socket, struct packet *packet);
/**
 * The same, but the packet stays on the socket: it is received again, with new descriptors, until
 * packet_discard() takes it off. For a receiver that must not lose it if it dies with the packet in
 * hand.
 */
int packet_peek(int socket, struct packet *packet);
/** The same for who takes no descriptors: none is received, and a packet that has some is
 * PACKET_E_INVALID. */
int packet_peek_bare(int socket, struct packet *packet);
/** Takes the first packet off the socket. */
void packet_discard(int socket);
/** Closes the descriptors that are still there. */
void packet_close_fds(struct packet *packet);
/** Takes descriptor `index` out of the packet; -1 if there is none. The caller owns it. */
int packet_take_fd(struct packet *packet, unsigned index);
/** Sends what is encoded, with at most WIRE_FDS_MAX descriptors (still owned by the caller).
 * Return: 0, PACKET_E_*, -errno. */
int packet_send(int socket, const uint8_t *bytes, size_t length, const int *fds, unsigned fd_count);
/** Encodes and sends a message with descriptors (still owned by the caller). Return: 0, PACKET_E_*,
 * -errno.
 */
int message_send(int socket, const struct wire_message *message, const int *fds, unsigned fd_count);

/**
 * Whether nobody but root and this user can have put a socket into a directory: one in /tmp whoever
 * comes first makes. Any thread.
 */
bool socket_directory_is_trusted(const char *directory);

#endif
