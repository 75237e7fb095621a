// Descriptors and device memory of an earlier life: several records name the same ones, so each is
// made again once, by whoever asks first. Device memory that the dead daemon had doomed is sorted
// here, too: what something still holds, what the keeper has been told to let go of, and the rest.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_ADOPT_INVENTORY_H
#define FRMPS_SERVER_ADOPT_INVENTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chunk;
struct daemon;
struct doomed;
struct kept_chunk;
struct made;
struct repetitions;
struct shared_fd;

struct inventory {
	struct daemon *daemon;
	struct made *made; /* by key of the descriptor */
	uint32_t made_count;
	struct doomed *doomed;
	size_t doomed_count;
	struct chunk **empty; /* chunks without memory: there are no descriptors to know them by */
	size_t empty_count, empty_room;
};

/** Reads what was doomed. @fd_count: keys are below this */
void inventory_init(struct inventory *inventory, struct daemon *daemon, uint32_t fd_count);
void inventory_deinit(struct inventory *inventory);

/** A reference to the descriptor under a key. NULL: there is none. */
struct shared_fd *inventory_fd(struct inventory *inventory, uint32_t key);
/** A reference to a chunk. NULL: there is none, or the keeper has been told to let go of it.
 * @may_be_empty: its content may be in host memory, as that of a suspended session alone */
struct chunk *inventory_chunk(struct inventory *inventory, const struct kept_chunk *kept, bool may_be_empty);

/* Once everything that holds chunks has asked for them. */
/** Has the keeper told again of what it was told to let go of. */
void inventory_repeat(struct inventory *inventory, struct repetitions *list);
/** Tells it of the rest that nobody holds; behind the repetitions. */
void inventory_release(struct inventory *inventory);

#endif
