// The device memory of a session as a list of chunks, with the place of each in a file.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_PIECE_H
#define FRMPS_SERVER_STANDBY_PIECE_H

#include <stdint.h>

struct chunk;
struct holding;
struct holdings;

/* A chunk, and the session's entries of that chunk. */
struct piece {
	struct chunk *chunk;
	struct holding **entries; /* MAP_MEMORY and CREATE_MEMORY */
	uint32_t count;
	uint64_t bytes, offset; /* offset: in the file */
	/* has the chunk's memory while that is being given back; for the user of the list */
	struct chunk *old;
};

struct pieces {
	struct holding **entries;
	struct piece *at;
	uint32_t count;
	uint64_t bytes; /* of all */
};

/** Lists the chunks in the order in which the session got them. Valid, and always the same, while
 * the holdings do not change. */
void pieces_init(struct pieces *pieces, const struct holdings *holdings);
void pieces_deinit(struct pieces *pieces);

/** Some mapping of the chunk; NULL without any. */
const struct holding *piece_mapping(const struct piece *piece);

#endif
