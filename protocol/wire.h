// The C view of control.fbs: a plain struct per message body, and the two functions that turn a
// packet into such a struct and back. wire.cc is the only C++ code that runs and the only user of
// flatc's generated tables. control.fbs has the meaning of every field.
//
// A decoded message points into its packet (strings, vectors) and is valid as long as that buffer;
// its lists of names point into the message itself, so a decoded message must not be copied as a
// struct. Strings are NUL-terminated inside the packet (verified); absent strings decode to "".
// Vectors have a count; an absent vector has count 0. Both functions are reentrant, keep no state
// and never throw.

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

enum wire_type {
	WIRE_NONE = 0,
#define MESSAGE(name, table, member, fields) WIRE_##name,
#include "protocol/wire.def"
	WIRE_TYPES
};

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

/* Layout of a session's regions, as published (shm/region.h checks it). */
struct wire_shape {
	uint64_t ring_offset, ring_bytes, arena_offset, arena_bytes, client_bytes;
	uint64_t states_offset, timelines_offset, journal_offset, server_bytes;
	uint32_t journal_blocks;
	uint64_t times_offset, more_offset;
};

struct wire_device {
	const char *name;
	struct wire_bytes uuid;
	struct wire_i32s attributes;
	uint64_t total_bytes;
	int32_t priority_least, priority_greatest;
	struct wire_u64s limits;
	struct wire_bytes peers;
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
#define WIRE_DEVICES_MAX	   16u
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

struct wire_option {
	uint32_t id, reserved;
	uint64_t value;
};
struct wire_options {
	const struct wire_option *at;
	uint32_t count;
};

struct wire_hello {
	uint32_t major, minor;
	uint64_t features;
	const char *program;
	struct wire_u64s free_windows;
	uint64_t window_base, window_bytes;
	uint32_t recovery;
	const char *identity;
	uint64_t memory_limit; /* bytes */
	uint32_t sm_percent, priority;
	const char *sm_partition;
	uint32_t describe;
};
struct wire_welcome {
	uint32_t major, minor;
	uint64_t features, session, token;
	uint64_t window_base, device_bytes, host_bytes;
	struct wire_shape shape;
	int32_t driver_version;
	struct wire_device devices[WIRE_DEVICES_MAX];
	uint32_t device_count;
	uint32_t spin_us;
	uint64_t memory_limit;
};
struct wire_refuse {
	int32_t code;
	const char *text;
};
struct wire_reply {
	int32_t code;
	struct wire_u64s values;
	/* Encoding: `names` is used (NULL elements are sent as ""). Decoding: names.at points to
	 * name_storage. */
	struct wire_names names;
	const char *name_storage[WIRE_NAMES_MAX];
	const char *text;
};
/* MapMemory, UnmapMemory, MapHost, UnmapHost (flags only in MapMemory and MapHost). */
struct wire_range {
	uint64_t address, bytes;
	uint32_t flags;
};
struct wire_load_module {
	uint32_t module, kind;
	uint64_t bytes;
	struct wire_options options;
	uint64_t variables;
	bool is_filled;
	uint64_t file, code, room;
};
/* A module's place of code that is not an address. */
#define WIRE_CODE_ASKED	    UINT64_C(0)
#define WIRE_CODE_OF_DRIVER UINT64_C(1)
/* A module's place of variables that is not a block. */
#define WIRE_VARIABLES_ASKED	 UINT64_C(0)
#define WIRE_VARIABLES_OF_DRIVER UINT64_C(1)
/* UnloadModule, FindFunction, FindGlobal, ListFunctions: fields that the message lacks are 0 /
 * "". */
struct wire_symbol {
	uint32_t module, function;
	const char *name;
	uint32_t from; /* ListFunctions: names to leave out */
};
struct wire_set_function {
	uint32_t function, attribute;
	int64_t value;
};
struct wire_occupancy {
	uint32_t function, query, flags, blocks, block_size;
	uint64_t shared_bytes;
	struct wire_u32s grid, block; /* 3 words each, or none */
	struct wire_bytes attributes; /* whole frmps_launch_attribute structs, at most FRMPS_ATTRIBUTE_MAX */
};
struct wire_elapsed {
	uint32_t start_event, end_event;
	uint64_t start_seq, end_seq;
	uint32_t start_stream, end_stream;
};
struct wire_open_session {
	uint64_t window_base, device_bytes, host_bytes;
	struct wire_shape shape;
	uint32_t recovery;
	const char *program;
	int32_t pid;
	uint64_t text;
	uint32_t user; /* 0: the id of the executor's start */
};
/* CloseSession, DetachSession. */
struct wire_close_session {
	uint32_t patience_ms;
};
struct wire_activate {
	uint32_t generation;
	struct wire_u64s sessions;
	struct wire_u32s recover; /* as many as sessions */
	int32_t code;
	const char *reason;
	uint32_t canary_ms;
};
/* The keeper knows no device: uuid.count is 0 then, and only then the device is absent from the
 * packet. */
struct wire_ready {
	struct wire_device device;
	int32_t driver_version;
	bool contains;
	uint32_t sm_granule, sm_units;
};
struct wire_description {
	struct wire_device device;
	uint32_t number, count;
	int32_t driver_version;
	uint64_t features;
};
struct wire_halt {
	bool fence;
};
/* Offence, Suspect (text), Lost (code, text), Fault (all, text is the kernel). */
struct wire_trouble {
	int32_t code;
	const char *text;
	uint64_t instruction;
	uint64_t took; /* ns */
	uint32_t number;
};
struct wire_chunk {
	uint64_t bytes, handle;
};
struct wire_open_guard {
	uint32_t policy, interval_ms;
};
struct wire_guard_hit {
	const char *text;
};
/* CreateMemory, ReleaseMemory, MapHandle, ExportMemory, ImportMemory: fields that the message lacks
 * are 0. */
struct wire_memory {
	uint64_t handle, address, bytes;
	uint64_t token[2];
	bool host;
};
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
struct wire_lend {
	uint64_t token[2];
	uint32_t uid;
};
/* ReserveWindow, ReleaseWindow (address and bytes). */
struct wire_window {
	uint64_t address, bytes, alignment;
	struct wire_u64s free_windows;
};
/* MakeGraph, DropGraph (only the id). */
struct wire_graph {
	uint32_t graph;
	uint64_t bytes;
	uint64_t file;
};
/* ImportHost. */
struct wire_import {
	uint64_t address, bytes, session, source;
};
/* Flags of MapHost. */
#define WIRE_HOST_EVENTS 1u
/* SetLimit. */
struct wire_limit {
	uint32_t limit; /* CUlimit */
	uint64_t value;
};
/* LinkAdd, LinkComplete, LinkDrop: fields that the message lacks are 0, "" and empty. */
struct wire_link {
	uint32_t link, position, type;
	uint64_t bytes;
	const char *name;
	struct wire_options options, own;
	uint64_t file;
};
/* MakeArray, DropArray (only the id). Values without pointers: may be copied. */
struct wire_array {
	uint32_t array, levels;
	uint64_t width, height, depth;
	uint32_t format, channels, flags;
};
struct wire_back_array {
	uint32_t array;
	uint64_t address, bytes, offset, span;
};
/* MakeObject, DropObject (only the id). Values without pointers: may be copied. */
struct wire_object {
	uint32_t object, kind, resource, array, level, format, channels;
	bool has_texture, has_view;
	uint64_t address, bytes, width, height, pitch, value;
	uint8_t texture[WIRE_TEXTURE_BYTES], view[WIRE_VIEW_BYTES];
};
/* Vectors have at most WIRE_TENSOR_RANK_MAX elements; map has WIRE_TENSOR_MAP_WORDS or none. */
struct wire_tensor_map {
	uint32_t kind, type, rank, channels, pixels;
	uint32_t interleave, swizzle, promotion, fill;
	uint64_t address;
	struct wire_u64s dims, strides, map;
	struct wire_u32s box, element_strides;
	struct wire_i32s lower, upper;
};
/* Multiples of the page size. */
struct wire_carry {
	uint64_t address, bytes, offset; /* offset: in the file */
	bool into;			 /* into the memory; else out of it */
};
struct wire_handover {
	uint32_t step, device, transfer, files;
	uint64_t key[2];
	int32_t code;
	const char *text;
};
struct wire_admin {
	const char *command;
	struct wire_names arguments;
	const char *name_storage[WIRE_ARGUMENTS_MAX];
};
struct wire_admin_reply {
	int32_t code;
	const char *json;
};

struct wire_message {
	enum wire_type type;
	uint64_t id, session;
	union {
		struct wire_hello hello;
		struct wire_welcome welcome;
		struct wire_refuse refuse;
		struct wire_reply reply;
		struct wire_range range;
		struct wire_load_module load_module;
		struct wire_symbol symbol;
		struct wire_set_function set_function;
		struct wire_occupancy occupancy;
		struct wire_elapsed elapsed;
		struct wire_open_session open_session;
		struct wire_close_session close_session;
		struct wire_halt halt;
		struct wire_activate activate;
		struct wire_ready ready;
		struct wire_trouble trouble;
		struct wire_chunk chunk;
		struct wire_open_guard open_guard;
		struct wire_guard_hit guard_hit;
		struct wire_memory memory;
		struct wire_window window;
		struct wire_tensor_map tensor_map;
		struct wire_graph graph;
		struct wire_link link;
		struct wire_import import;
		struct wire_limit limit;
		struct wire_array array;
		struct wire_back_array back_array;
		struct wire_object object;
		struct wire_carry carry;
		struct wire_description description;
		struct wire_lend lend;
		struct wire_handover handover;
		struct wire_admin admin;
		struct wire_admin_reply admin_reply;
	};
};

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
