// See in_flight.h. Lists, because a session uses few of its many streams.

#include "server/incident/in_flight.h"

#include <stdlib.h>

#include "server/log.h"

/* Makes room for one more range; forgetting a range would lose evidence. */
static struct in_flight_range *grow(struct in_flight *set)
{
	/* A power of two is full. */
	if (!(set->count & (set->count - 1))) {
		uint32_t room = set->count ? set->count * 2 : 1;
		struct in_flight_range *grown = realloc(set->ranges, room * sizeof(*grown));

		log_bug_on(!grown);
		set->ranges = grown;
	}
	return &set->ranges[set->count++];
}

void in_flight_init(struct in_flight *set, const struct shm_view *view)
{
	uint32_t used = shm_view_used(view);

	*set = (struct in_flight){0};
	for (uint32_t slot = 0; slot < used; slot++) {
		uint64_t issued = word_acquire(&view->states[slot].issued);
		uint64_t done = shm_view_known_done(view, slot);

		if (issued > done)
			*grow(set) = (struct in_flight_range){slot, done + 1, issued};
	}
}

void in_flight_copy(struct in_flight *set, const struct in_flight *from)
{
	*set = (struct in_flight){0};
	for (uint32_t i = 0; i < from->count; i++)
		*grow(set) = from->ranges[i];
}

void in_flight_deinit(struct in_flight *set)
{
	free(set->ranges);
	*set = (struct in_flight){0};
}

static const struct in_flight_range *find(const struct in_flight *set, uint32_t slot)
{
	for (uint32_t i = 0; i < set->count; i++)
		if (set->ranges[i].slot == slot)
			return &set->ranges[i];
	return NULL;
}

bool in_flight_intersect(struct in_flight *set, const struct in_flight *other)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < set->count; i++) {
		struct in_flight_range range = set->ranges[i];
		const struct in_flight_range *there = find(other, range.slot);

		if (!there)
			continue;
		range.first = range.first > there->first ? range.first : there->first;
		range.last = range.last < there->last ? range.last : there->last;
		if (range.first <= range.last)
			set->ranges[left++] = range;
	}
	set->count = left;
	return left;
}
