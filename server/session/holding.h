// A holding: one resource of a session. A request that succeeded makes the holding; a record saves
// the holding; in a standby, a request made from the holding makes the resource once more. Daemon,
// loop thread only; holdings.h has the list.

#ifndef FRMPS_SERVER_SESSION_HOLDING_H
#define FRMPS_SERVER_SESSION_HOLDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv/tree.h>

#include "protocol/wire.h"

struct chunk;
struct holdings;
struct kept_holding;
struct record;
struct shared_fd;
struct store;

/* Ids of modules and functions are 1 … HOLDINGS_IDS - 1. */
#define HOLDINGS_IDS 65536u

struct holding {
	TAILQ_ENTRY(holding) link;
	RB_ENTRY(holding) range_link;	  /* holdings->ranges: MAP_MEMORY, MAP_HOST */
	TAILQ_ENTRY(holding) memory_link; /* holdings->memories: CREATE_MEMORY */
	/* MAP_MEMORY, MAP_HOST, LOAD_MODULE, FIND_FUNCTION, FIND_GLOBAL, SET_FUNCTION,
	 * CREATE_MEMORY (also imported memory), RESERVE_WINDOW, MAKE_GRAPH, MAKE_ARRAY, BACK_ARRAY,
	 * MAKE_OBJECT, SET_LIMIT */
	enum wire_type type;
	struct wire_range range; /* CREATE_MEMORY, SET_LIMIT: only the size */
	/* CREATE_MEMORY: the handle; MAP_MEMORY: handle of the mapped memory, 0: none; LOAD_MODULE:
	 * address of the variables */
	uint64_t memory;
	uint32_t module, function; /* FIND_FUNCTION, SET_FUNCTION: both; the others: module */
	/* attribute: the id of MAKE_GRAPH, MAKE_ARRAY and MAKE_OBJECT, the array's of BACK_ARRAY;
	 * the limit of SET_LIMIT */
	uint32_t kind, attribute;
	int64_t value; /* SET_FUNCTION, SET_LIMIT; LOAD_MODULE: 1 if the kernels have no state */
	uint64_t image_bytes;
	uint64_t unpacked_bytes; /* LOAD_MODULE: of compressed code, beside the image */
	/* FIND_GLOBAL: address and bytes in the active executor; BACK_ARRAY: offset and span;
	 * LOAD_MODULE: where the code is, as in the message, and its constants in a bank */
	uint64_t global[2];
	char *name;		     /* FIND_FUNCTION, FIND_GLOBAL */
	struct wire_option *options; /* LOAD_MODULE */
	uint32_t option_count;
	/* MAKE_ARRAY: a wire_array; MAKE_OBJECT: a wire_object with the handle; NULL: none */
	void *form;
	uint32_t form_bytes;
	struct shared_fd *fd; /* host memory, image, description of a graph */
	struct chunk *chunk;  /* MAP_MEMORY, CREATE_MEMORY; BACK_ARRAY: of the mapping around it */
	TAILQ_ENTRY(holding) owners_link; /* of the chunk, where the entry counts as memory */
	struct holdings *holdings;	  /* the list of this entry */
	uint64_t serial;		  /* of the record, which gives the order */
	const struct record *record;
	bool is_untold; /* standbys do not know the entry yet (standby/warm.h) */
};

/* In the flags of a RESERVE_WINDOW: for pinned memory. */
#define HOLDING_HOST_WINDOW 1u

/** True for a window for pinned memory; else a RESERVE_WINDOW is for device memory. */
static inline bool holding_is_host_window(const struct holding *entry)
{
	return entry->type == WIRE_RESERVE_WINDOW && entry->range.flags & HOLDING_HOST_WINDOW;
}

/** NULL is fine. Return: NULL. */
struct holding *holding_free(struct holding *entry);

/** Memory that the service needs beside the entry (here, in the record, or in executors), bytes. */
uint64_t holding_kept_bytes(const struct holding *entry);
/** Room of the record in the store, bytes. */
uint64_t holding_record_bytes(const struct holding *entry);
/** Notes a description under an id. Return: 0 or -ENOMEM */
int holding_fill_form(struct holding *entry, uint32_t id, const void *form, size_t bytes);

/** Records the entry; does nothing without a store. */
void holding_save(struct holding *entry, struct store *store, uint64_t session);
/**
 * Makes an entry from its record, whose payload is @kept, @bytes long.
 * Return: without descriptor and chunk; NULL if that is no payload of an entry
 */
struct holding *holding_adopt(const struct record *record, const struct kept_holding *kept, size_t bytes);

#endif
