// See grave.h.

#include "client/state/grave.h"

void graveyard_add(struct graveyard *yard, struct grave *grave)
{
	pthread_mutex_lock(&yard->lock);
	grave->next = yard->first;
	yard->first = grave;
	pthread_mutex_unlock(&yard->lock);
}

struct grave *graveyard_take(struct graveyard *yard)
{
	struct grave **at = &yard->first, *found;

	pthread_mutex_lock(&yard->lock);
	while (*at && !yard->is_over(*at))
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&yard->lock);
	return found;
}
