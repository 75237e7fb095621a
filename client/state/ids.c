// See ids.h. A bit for each id.

#include "client/state/ids.h"

uint32_t ids_take(struct ids *ids)
{
	uint32_t found = 0;

	pthread_mutex_lock(&ids->lock);
	ids->words[0] |= 1;
	for (uint32_t i = 0; !found && i < ids->bound / 64; ++i)
		if (ids->words[i] != UINT64_MAX)
			found = i * 64 + (uint32_t)__builtin_ctzll(~ids->words[i]);
	if (found)
		ids->words[found / 64] |= UINT64_C(1) << found % 64;
	pthread_mutex_unlock(&ids->lock);
	return found;
}

void ids_give(struct ids *ids, uint32_t id)
{
	pthread_mutex_lock(&ids->lock);
	ids->words[id / 64] &= ~(UINT64_C(1) << id % 64);
	pthread_mutex_unlock(&ids->lock);
}
