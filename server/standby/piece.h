// The device memory of one session as a list of chunks, and where in a file each of them goes.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_PIECE_H
#define FRMPS_SERVER_STANDBY_PIECE_H

#include <stdint.h>

struct chunk;
struct holding;
struct holdings;

/* A chunk, and what its session has of it. */
struct piece {
	struct chunk *chunk;
	struct holding **entries; /* MAP_MEMORY and CREATE_MEMORY */
	uint32_t count;
	uint64_t bytes, offset; /* offset: in the file */
	struct chunk *old; /* that has its memory while that is being given back; for the user of the list */
};

struct pieces {
	struct holding **entries;
	struct piece *at;
	uint32_t count;
	uint64_t bytes; /* of all */
};

/** Lists them in the order in which the session got them: always the same while nothing comes or
 * goes. Valid so long. */
void pieces_init(struct pieces *pieces, const struct holdings *holdings);
void pieces_deinit(struct pieces *pieces);

/** Some mapping of the chunk; NULL if it is mapped nowhere. */
const struct holding *piece_mapping(const struct piece *piece);

#endif
