// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// What a session has, in the order in which it got it: everything that a new standby must be told to be able
// to take the session over. Daemon, loop thread only; belongs to one session.
//
// An entry is made when the active executor has answered a request with success. A reader rebuilds the
// session by sending the entries from first to last: an entry depends only on earlier ones (a function on its
// module). Invariants: mapped ranges are disjoint; ids of modules and functions are unique; a setting
// replaces the earlier value of the same setting in its place; unloading a module takes its functions,
// settings and globals along.

#ifndef FRMPS_SERVER_SESSION_HOLDINGS_H
#define FRMPS_SERVER_SESSION_HOLDINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "protocol/wire.h"

struct chunk;
struct shared_fd;

/* Ids of modules and functions are 1 … HOLDINGS_IDS - 1. */
#define HOLDINGS_IDS	     65536u
#define HOLDINGS_ENTRIES_MAX 262144u

struct holding {
	TAILQ_ENTRY(holding) link;
	enum wire_type type; /* MAP_MEMORY, MAP_HOST, LOAD_MODULE, FIND_FUNCTION, FIND_GLOBAL, SET_FUNCTION */
	struct wire_range range;
	uint32_t module, function; /* FIND_FUNCTION, SET_FUNCTION: both; the others: module */
	uint32_t kind, attribute;
	int64_t value;
	uint64_t image_bytes;
	uint64_t global[2];	     /* FIND_GLOBAL: address and bytes as the active executor has them */
	char *name;		     /* FIND_FUNCTION, FIND_GLOBAL */
	struct wire_option *options; /* LOAD_MODULE */
	uint32_t option_count;
	struct shared_fd *fd; /* host memory, image */
	struct chunk *chunk;  /* MAP_MEMORY */
};

struct holdings {
	TAILQ_HEAD(holding_list, holding) entries;
	uint32_t count;
	uint64_t memory_bytes, host_bytes; /* sums of the mapped ranges */
	uint64_t modules[HOLDINGS_IDS / 64];
	uint16_t module_of[HOLDINGS_IDS]; /* by function id; 0: no such function */
};

void holdings_init(struct holdings *holdings);
void holdings_deinit(struct holdings *holdings);

bool holdings_has_module(const struct holdings *holdings, uint32_t module);
bool holdings_has_function(const struct holdings *holdings, uint32_t function);
/** Whether a range touches one that is mapped. */
bool holdings_overlaps(const struct holdings *holdings, const struct wire_range *range);
/** The mapping of exactly this range, NULL if there is none. */
struct holding *holdings_find_range(
	const struct holdings *holdings, enum wire_type type, uint64_t address, uint64_t bytes);

/**
 * Notes a request that succeeded.
 * @message: MAP_MEMORY, MAP_HOST, LOAD_MODULE, FIND_FUNCTION, FIND_GLOBAL or SET_FUNCTION, checked before
 * @values: the reply's
 * @fd: image or host memory, NULL otherwise; @chunk: device memory; both are referenced
 * @ret_entry: what standbys are to be told; NULL when they know it already (a global asked for twice)
 * Return: 0 or -ENOMEM
 */
int holdings_note(struct holdings *holdings, const struct wire_message *message,
	const struct wire_u64s *values, struct shared_fd *fd, struct chunk *chunk,
	struct holding **ret_entry);

/** Takes a mapping away. */
void holdings_drop_range(struct holdings *holdings, struct holding *entry);
/** Takes a module and everything found in it away. */
void holdings_drop_module(struct holdings *holdings, uint32_t module);

/** The request that makes an entry's effect again. Points into the entry; id is not set. */
void holdings_message(const struct holding *entry, uint64_t session, struct wire_message *ret_message);

#endif
