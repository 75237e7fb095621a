// See reclaim.h.

#include "client/state/reclaim.h"

void reclaim_add(struct reclaim_list *list, struct reclaim *reclaim)
{
	pthread_mutex_lock(&list->lock);
	reclaim->next = list->first;
	list->first = reclaim;
	pthread_mutex_unlock(&list->lock);
}

struct reclaim *reclaim_take(struct reclaim_list *list)
{
	struct reclaim **at = &list->first, *found;

	pthread_mutex_lock(&list->lock);
	while (*at && !list->is_over(*at))
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&list->lock);
	return found;
}
