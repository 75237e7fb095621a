// What a session had in doubt at a loss: per stream the commands behind `done` that were issued. Kept by the
// daemon from one loss to the next, so that both can be compared. Pure functions over shared words; a doubt
// belongs to one session.

#ifndef FRMPS_SERVER_FAILOVER_DOUBT_H
#define FRMPS_SERVER_FAILOVER_DOUBT_H

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

/** Whether every one of these commands is known done by now. */
bool doubt_is_done(const struct doubt *doubt, const struct shm_view *view);

/**
 * Whether every stream has gone beyond these commands: a later command of it is known done. More than
 * doubt_is_done(): the word behind a command that faults may still arrive, one that stands behind a later
 * command does not.
 */
bool doubt_is_passed(const struct doubt *doubt, const struct shm_view *view);

/** Whether every command of @then is in doubt in @now. */
bool doubt_holds(const struct doubt *now, const struct doubt *then);

/** Leaves in @doubt what is in @other, too. Return: whether that is anything. */
bool doubt_intersect(struct doubt *doubt, const struct doubt *other);

#endif
