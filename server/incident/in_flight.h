// Commands of a session that were in flight at a loss: per stream, the commands behind `done` that
// were issued. The daemon remembers them from one loss to the next: a command in flight in both may
// be the cause. Pure functions over shared words; each set belongs to one session.

#ifndef FRMPS_SERVER_INCIDENT_IN_FLIGHT_H
#define FRMPS_SERVER_INCIDENT_IN_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

/* Commands first … last of a stream. */
struct in_flight_range {
	uint32_t slot;
	uint64_t first, last;
};

/* In the order of slots; all zero: nothing in flight. */
struct in_flight {
	struct in_flight_range *ranges;
	uint32_t count;
};

/** Reads a mapped session by the generation in its own header. After the fence only. */
void in_flight_init(struct in_flight *set, const struct shm_view *view);
/** Makes @set a copy. */
void in_flight_copy(struct in_flight *set, const struct in_flight *from);
/** All zero is fine; leaves all zero. */
void in_flight_deinit(struct in_flight *set);

/** Leaves in @set only commands that @other has too. Return: true if any are left. */
bool in_flight_intersect(struct in_flight *set, const struct in_flight *other);

#endif
