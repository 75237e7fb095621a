// The device memory of sessions as a list of chunks. Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_PIECE_H
#define FRMPS_SERVER_STANDBY_PIECE_H

#include <stdint.h>

struct chunk;
struct holding;
struct holdings;

/* A chunk, and all entries of that chunk. */
struct piece {
	struct chunk *chunk;
	struct holding **entries; /* MAP_MEMORY and CREATE_MEMORY, of any of the sessions */
	uint32_t count;
	uint32_t first; /* position of the first entry among all entries of the sessions */
	uint64_t bytes;
	/* has the chunk's memory while that is being given back; for the user of the list */
	struct chunk *old;
};

struct pieces {
	struct holding **entries;
	struct piece *at;
	uint32_t count;
	uint64_t bytes; /* of all */
};

/** Lists the chunks of so many sessions in the order in which the sessions got them, one session
 * after the other. A chunk that several sessions have is one piece. Valid while the holdings do not
 * change. */
void pieces_init(struct pieces *pieces, const struct holdings *const *sessions, uint32_t session_count);
void pieces_deinit(struct pieces *pieces);

/** Gives each chunk its place in the files. */
void pieces_place(const struct pieces *pieces);

/** Some mapping of the chunk; NULL without any. */
struct holding *piece_mapping(const struct piece *piece);

#endif
