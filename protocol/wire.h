// The C view of control.fbs: a plain struct per message body, and the two functions that turn a
// packet into such a struct and back. The structs, with the comments of the schema, are in
// wire_messages.h, which schema.py makes. wire.cc is the only C++ code that runs and the only user
// of flatc's generated tables.
//
// A decoded message points into its packet (strings, vectors) and is valid as long as that buffer;
// its lists of names point into the message itself (names_storage), so a decoded message must not
// be copied as a struct. Bodies without strings and vectors may be copied. Strings are
// NUL-terminated inside the packet (verified); absent strings decode to "". Vectors have a count;
// an absent vector has count 0. Both functions are reentrant, keep no state and never throw.

#ifndef FRMPS_PROTOCOL_WIRE_H
#define FRMPS_PROTOCOL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the largest packet; both sides refuse larger packets. */
#define WIRE_PACKET_MAX 65536u
/* Most descriptors beside a packet. */
#define WIRE_FDS_MAX 4u

struct wire_u64s {
	const uint64_t *at;
	uint32_t count;
};
struct wire_u32s {
	const uint32_t *at;
	uint32_t count;
};
struct wire_i32s {
	const int32_t *at;
	uint32_t count;
};
struct wire_bytes {
	const uint8_t *at;
	uint32_t count;
};
struct wire_names {
	const char *const *at;
	uint32_t count;
};

/* Of Device.peers. */
#define WIRE_PEER_ACCESS      1u
#define WIRE_PEER_ATOMICS     2u
#define WIRE_PEER_RANK(value) ((value) >> 2)
#define WIRE_PEER_RANK_MAX    63u
/** The value for a device whose memory can be mapped. */
static inline uint8_t wire_peer(bool atomics, unsigned rank)
{
	return (uint8_t)(WIRE_PEER_ACCESS | (atomics ? WIRE_PEER_ATOMICS : 0) |
			 (rank < WIRE_PEER_RANK_MAX ? rank : WIRE_PEER_RANK_MAX) << 2);
}

/* Limits of vectors; beyond these both functions return WIRE_E_INVALID. The packet limits all other
 * vectors. */
#define WIRE_NAMES_MAX		   512u /* names of a Reply */
#define WIRE_ARGUMENTS_MAX	   16u	/* arguments of an Admin command */
#define WIRE_WINDOW_WORDS_MAX	   64u	/* words of Hello.free_windows */
#define WIRE_DEVICE_ATTRIBUTES_MAX 512u
#define WIRE_DEVICE_LIMITS_MAX	   64u
#define WIRE_PEERS_MAX		   64u
#define WIRE_OPTIONS_MAX	   64u /* options of LoadModule, LinkAdd, LinkComplete */
#define WIRE_UUID_BYTES		   16u /* exactly */
#define WIRE_TENSOR_RANK_MAX	   5u
#define WIRE_TENSOR_MAP_WORDS	   16u
#define WIRE_TEXTURE_BYTES	   104u /* exactly: the driver's description of a texture */
#define WIRE_VIEW_BYTES		   112u /* exactly: the driver's description of a resource view */

/* A module's place of code that is not an address. */
#define WIRE_CODE_ASKED	    UINT64_C(0)
#define WIRE_CODE_OF_DRIVER UINT64_C(1)
/* A module's place of variables that is not a block. */
#define WIRE_VARIABLES_ASKED	 UINT64_C(0)
#define WIRE_VARIABLES_OF_DRIVER UINT64_C(1)

/* Contents of the descriptor that the reply to ExportMemory by handle carries: a sealed memfd. */
#define WIRE_EXPORT_MAGIC "frmpsmem"
#define WIRE_EXPORT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)
struct wire_export {
	char magic[8];
	uint64_t token[2];
};

/* The device whose service made the memory of a token, by its number there. */
#define WIRE_TOKEN_DEVICES	 64u
#define WIRE_TOKEN_DEVICE(token) ((unsigned)((token)[0] % WIRE_TOKEN_DEVICES))

/* Flags of MapHost. */
#define WIRE_HOST_EVENTS 1u
#define WIRE_HOST_FILE	 2u /* only from the daemon */

/* The name of the memfds behind the service's pinned memory. */
#define WIRE_HOST_NAME "frmps-host"

/* The length of a file of MakeFile, and the most that a program puts there. */
#define WIRE_FILE_BYTES (UINT64_C(4) << 30)

#include "protocol/wire_messages.h"

/* Outcomes. */
#define WIRE_E_INVALID                                                                                       \
	1	       /* not a well-formed message of this protocol (decode), or a limit above is exceeded */
#define WIRE_E_SPACE 2 /* the packet does not fit the buffer (encode) */

/**
 * Encodes a message.
 * @message: NULL strings are sent as absent
 * @buffer, @size: at most WIRE_PACKET_MAX bytes are ever written, none on failure
 * @ret_length: bytes of the packet; written only on success
 * Return: 0, WIRE_E_INVALID or WIRE_E_SPACE, -ENOMEM
 */
int wire_encode(const struct wire_message *message, uint8_t *buffer, size_t size, size_t *ret_length);

/* Room for building a message. */
#define WIRE_BUILD_SLACK 16384
struct wire_room {
	uint64_t words[(WIRE_PACKET_MAX + WIRE_BUILD_SLACK) / 8];
};

/**
 * As wire_encode(), with the caller's room, for callers that must always send an answer: never
 * -ENOMEM.
 */
int wire_encode_in(struct wire_room *room, const struct wire_message *message, uint8_t *buffer, size_t size,
	size_t *ret_length);

/**
 * Verifies and decodes a packet.
 * @packet: 8-byte aligned, at most WIRE_PACKET_MAX bytes; must stay valid while *ret_message is
 * used
 * @ret_message: on failure only its type is defined, WIRE_NONE
 * Return: 0 or WIRE_E_INVALID
 */
int wire_decode(const uint8_t *packet, size_t length, struct wire_message *ret_message);

/** Name of a message type for logs; "unknown" for anything else. */
const char *wire_type_name(enum wire_type type);

#ifdef __cplusplus
}
#endif

#endif
