// Makes sessions from records, for the files of this room: from records of an earlier life of the
// daemon, or of a session from another device. Daemon, loop thread only.

#ifndef FRMPS_SERVER_ADOPT_ADOPTION_H
#define FRMPS_SERVER_ADOPT_ADOPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/adopt/repeat.h"

struct chunk;
struct daemon;
struct doomed;
struct kept_chunk;
struct made;
struct record;
struct shared_fd;
struct worker;

/* Descriptors and device memory of an earlier life: several records name the same descriptor,
 * so the object is made once, for the first record that asks. Sorts the device memory that the
 * dead daemon was releasing, too: memory with an owner, memory that the keeper was asked to
 * release, and the rest. */
struct inventory {
	struct daemon *daemon;
	struct made *made; /* by key of the descriptor */
	uint32_t made_count;
	struct doomed *doomed;
	size_t doomed_count;
	struct chunk **empty; /* chunks without memory, which have no descriptors as a key */
	uint32_t empty_count, empty_room;
};

/** Reads the records of memory that was to be released. @fd_count: keys are below this */
void inventory_init(struct inventory *inventory, struct daemon *daemon, uint32_t fd_count);
void inventory_deinit(struct inventory *inventory);

/** A reference to the descriptor under a key. NULL: there is none. */
struct shared_fd *inventory_fd(struct inventory *inventory, uint32_t key);
/**
 * A reference to a chunk. NULL: there is none, or the keeper was asked to release the chunk.
 * @may_be_empty: the content may be in host memory, as only a suspended session's
 */
struct chunk *inventory_chunk(struct inventory *inventory, const struct kept_chunk *kept, bool may_be_empty);

/* After all owners of chunks have asked for theirs. */
/** Repeats the requests to the keeper to release memory. */
void inventory_repeat(struct inventory *inventory, struct repetitions *list);
/** Has the keeper release the rest, which has no owner; after the repetitions. */
void inventory_release(struct inventory *inventory);

struct adoption {
	struct daemon *daemon;
	struct inventory inventory;
	struct repetitions repetitions;
	bool crashed; /* the previous daemon was not killed by hand */
};

/** The keeper or executor with that number; NULL: there is none. */
struct worker *adoption_worker(const struct daemon *daemon, uint32_t number);

/** Makes a session, or one of its holdings, from a record; drops a record that names what is not
 * there. */
void adoption_read_session(struct adoption *adoption, const struct record *record);
void adoption_read_holding(struct adoption *adoption, const struct record *record);

#endif
