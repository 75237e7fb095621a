// What a session had in doubt at a loss: per stream the commands behind `done` that were issued.
// Kept by the daemon from one loss to the next: what is in doubt in both may be why. Pure functions
// over shared words; a doubt belongs to one session.

#ifndef FRMPS_SERVER_FAULT_DOUBT_H
#define FRMPS_SERVER_FAULT_DOUBT_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

/* Commands first … last of a stream. */
struct doubt_range {
	uint32_t slot;
	uint64_t first, last;
};

/* In the order of slots; all zero: nothing in doubt. */
struct doubt {
	struct doubt_range *ranges;
	uint32_t count;
};

/** Reads a mapped session by the generation in its own header. After the fence only. */
void doubt_init(struct doubt *doubt, const struct shm_view *view);
/** Makes @doubt a copy. */
void doubt_copy(struct doubt *doubt, const struct doubt *from);
/** Fine on all zero, which it leaves behind. */
void doubt_deinit(struct doubt *doubt);

/** Leaves in @doubt what is in @other, too. Return: whether that is anything. */
bool doubt_intersect(struct doubt *doubt, const struct doubt *other);

#endif
