// Doubts. See doubt.h. Lists, because a session uses few of its many streams.

#include "server/fault/doubt.h"

#include <stdlib.h>

#include "server/log.h"

/* Room for one more; what cannot be remembered would be lost evidence. */
static struct doubt_range *grow(struct doubt *doubt)
{
	/* A power of two is full. */
	if (!(doubt->count & (doubt->count - 1))) {
		uint32_t room = doubt->count ? doubt->count * 2 : 1;
		struct doubt_range *grown = realloc(doubt->ranges, room * sizeof(*grown));

		log_bug_on(!grown);
		doubt->ranges = grown;
	}
	return &doubt->ranges[doubt->count++];
}

void doubt_init(struct doubt *doubt, const struct shm_view *view)
{
	uint32_t used = shm_view_used(view);

	*doubt = (struct doubt){0};
	for (uint32_t slot = 0; slot < used; slot++) {
		uint64_t issued = word_acquire(&view->states[slot].issued);
		uint64_t done = shm_view_known_done(view, slot);

		if (issued > done)
			*grow(doubt) = (struct doubt_range){slot, done + 1, issued};
	}
}

void doubt_copy(struct doubt *doubt, const struct doubt *from)
{
	*doubt = (struct doubt){0};
	for (uint32_t i = 0; i < from->count; i++)
		*grow(doubt) = from->ranges[i];
}

void doubt_deinit(struct doubt *doubt)
{
	free(doubt->ranges);
	*doubt = (struct doubt){0};
}

static const struct doubt_range *find(const struct doubt *doubt, uint32_t slot)
{
	for (uint32_t i = 0; i < doubt->count; i++)
		if (doubt->ranges[i].slot == slot)
			return &doubt->ranges[i];
	return NULL;
}

bool doubt_intersect(struct doubt *doubt, const struct doubt *other)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < doubt->count; i++) {
		struct doubt_range range = doubt->ranges[i];
		const struct doubt_range *there = find(other, range.slot);

		if (!there)
			continue;
		range.first = range.first > there->first ? range.first : there->first;
		range.last = range.last < there->last ? range.last : there->last;
		if (range.first <= range.last)
			doubt->ranges[kept++] = range;
	}
	doubt->count = kept;
	return kept;
}
