// The resources of a session, in the order in which the session got them: all that a new standby
// needs to take the session over. Daemon, loop thread only; belongs to one session.
//
// An entry is made when the active executor has answered a request with success. A reader rebuilds
// the session by sending the entries from first to last: an entry depends only on earlier ones (a
// function on its module). Invariants: mapped ranges are disjoint; ids of modules and functions are
// unique; a setting replaces the earlier value of the same setting in its place; unloading a module
// removes its functions, settings and globals.

#ifndef FRMPS_SERVER_SESSION_HOLDINGS_H
#define FRMPS_SERVER_SESSION_HOLDINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "protocol/command.h"
#include "protocol/wire.h"
#include "server/session/holding.h"

struct chunk;
struct backend_device;
struct store;
struct window_set;

#define HOLDINGS_ENTRIES_MAX 262144u
#define HOLDINGS_WINDOWS_MAX 1024u /* further windows of one session */
/* Names, options and descriptions of one session that the service has in memory of its own,
 * bytes. */
#define HOLDINGS_KEPT_MAX (UINT64_C(1) << 30)

struct holdings {
	TAILQ_HEAD(holding_list, holding) entries;
	RB_HEAD(holding_tree, holding) ranges;	   /* mapped ranges, by address: disjoint */
	TAILQ_HEAD(memory_list, holding) memories; /* physical memory */
	uint32_t count;
	uint64_t memory_bytes; /* device memory, mapped or not; imported memory counts each time */
	/* The same, but each piece counts once in the whole service: for the session that has had
	 * the piece longest. */
	uint64_t owned_bytes;
	bool disowned;	     /* owns nothing any more: the session ends */
	bool away;	     /* the chunks are empty, or will be */
	uint64_t away_bytes; /* of these chunks, in place of owned_bytes */
	uint64_t host_bytes;
	uint64_t image_bytes;  /* images of modules, and what is unpacked of them */
	uint64_t kept_bytes;   /* see HOLDINGS_KEPT_MAX */
	uint64_t record_bytes; /* room of the entries' records in the store */
	uint32_t fds;	       /* descriptors of entries; those of chunks once per entry */
	uint32_t windows;      /* of RESERVE_WINDOW */
	uint32_t backed_count; /* arrays that have memory */
	/* Entries that count as memory and whose chunk is shared, and entries of another device's
	 * memory; 0: the session shares no device memory. */
	uint32_t shared_count;
	uint32_t untold; /* entries that standbys do not know yet */
	uint64_t modules[HOLDINGS_IDS / 64];
	uint16_t module_of[HOLDINGS_IDS]; /* by function id; 0: no such function */
	uint64_t graphs[FRMPS_GRAPH_IDS / 64];
	uint64_t arrays[FRMPS_ARRAY_IDS / 64], backed[FRMPS_ARRAY_IDS / 64];
	uint64_t objects[FRMPS_OBJECT_IDS / 64];
	struct store *store;		     /* where entries are recorded, may be NULL */
	struct window_set *window_set;	     /* has the windows of RESERVE_WINDOW entries */
	const struct backend_device *device; /* may be NULL if no limit is noted or asked about */
	uint64_t session;
};

void holdings_init(struct holdings *holdings);
void holdings_deinit(struct holdings *holdings);

bool holdings_has_module(const struct holdings *holdings, uint32_t module);
bool holdings_has_function(const struct holdings *holdings, uint32_t function);
bool holdings_has_graph(const struct holdings *holdings, uint32_t graph);
bool holdings_has_array(const struct holdings *holdings, uint32_t array);
/** True if the array has memory. */
bool holdings_has_backed(const struct holdings *holdings, uint32_t array);
bool holdings_has_object(const struct holdings *holdings, uint32_t object);
/** True if some of these bytes are the memory of an array. */
bool holdings_backs_array(const struct holdings *holdings, const struct wire_range *range);
/** True if the range overlaps a mapped range. */
bool holdings_overlaps(const struct holdings *holdings, const struct wire_range *range);
/** The mapping of exactly this range, NULL if there is none. */
struct holding *holdings_find_range(
	const struct holdings *holdings, enum wire_type type, uint64_t address, uint64_t bytes);

/** The physical memory with this handle, NULL if there is none. */
struct holding *holdings_find_memory(const struct holdings *holdings, uint64_t handle);
/** Device memory that a limit needs beyond the present need; counts as the session's. UINT64_MAX:
 * too large to compute */
uint64_t holdings_limit_growth(const struct holdings *holdings, const struct wire_limit *limit);
/** Device memory that a limit needs beyond the need of each context. UINT64_MAX: too large to
 * compute */
uint64_t holdings_limit_bytes(const struct holdings *holdings, const struct wire_limit *limit);
/** An entry's limit has another value from now on. */
void holdings_set_limit(struct holdings *holdings, struct holding *entry, const struct wire_limit *limit);
/** Owned memory on the device but for what limits take. */
uint64_t holdings_chunk_bytes(const struct holdings *holdings);
/** Device memory that the session has on the device now; imported memory counts each time. */
uint64_t holdings_mapped_bytes(const struct holdings *holdings);
/** Owned memory that no other session has: the end of the session frees this much. */
uint64_t holdings_sole_bytes(const struct holdings *holdings);
/** True if no other handle of the session is for the same memory. */
bool holdings_is_only_memory(const struct holdings *holdings, const struct holding *memory);
/** Some mapping of a chunk, NULL if there is none. */
struct holding *holdings_find_mapping(const struct holdings *holdings, const struct chunk *chunk);
/** The mapping around an address, NULL if there is none. */
struct holding *holdings_find_address(const struct holdings *holdings, uint64_t address);
/** An entry whose chunk has this token, NULL if there is none. */
struct holding *holdings_find_token(const struct holdings *holdings, const uint64_t token[2]);

/** The latest handle for a chunk, NULL if there is none. */
struct holding *holdings_find_created(const struct holdings *holdings, const struct chunk *chunk);

/** Adds an entry behind the others; the list owns the entry. */
void holdings_add(struct holdings *holdings, struct holding *entry);
/** The file of an entry belongs to a chunk from now on, a reference that the entry takes over.
 * @entry: of pinned memory without a handle */
void holdings_give_chunk(struct holdings *holdings, struct holding *entry, struct chunk *chunk);
/** Removes and frees an entry. */
void holdings_remove(struct holdings *holdings, struct holding *entry);
/** Removes the entry of a type with this id, if there is one. */
void holdings_remove_id(struct holdings *holdings, enum wire_type type, uint32_t id);

/** Call when a chunk has begun or ceased to be exported: its sessions share device memory, or do no
 * more. Twice is fine. */
void holdings_note_sharing(struct chunk *chunk);

/** Records an entry, once the daemon has sent the entry to every standby. */
void holdings_save(struct holdings *holdings, struct holding *entry);
/** The session ends: other sessions that share its memory own that memory from now on. Call once;
 * add nothing afterwards. */
void holdings_disown(struct holdings *holdings);

/** @away: the chunks have left the device and count there no more; else the chunks are back. Other
 * sessions that have the chunks change as well, in the same turn. Twice is fine. */
void holdings_set_away(struct holdings *holdings, bool away);

#endif
