// See repeat.h.

#include "server/adopt/repeat.h"

#include <stdlib.h>

#include "server/grow.h"
#include "server/log.h"
#include "server/worker/worker.h"

void repeat_later(
	struct repetitions *list, struct worker *worker, uint64_t id, repeat_fn *send, void *context)
{
	log_bug_on(!grow(&list->at, list->count, &list->room, sizeof(*list->at)));
	list->at[list->count++] = (struct repetition){worker, id, send, context};
}

static int compare(const void *left, const void *right)
{
	const struct repetition *a = left, *b = right;

	if (a->worker->number != b->worker->number)
		return a->worker->number < b->worker->number ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

void repeat_now(struct repetitions *list)
{
	if (list->count)
		qsort(list->at, list->count, sizeof(*list->at), compare);
	for (uint32_t i = 0; i < list->count; i++) {
		const struct repetition *one = &list->at[i];

		one->worker->next_request = one->id;
		one->send(one->worker, one->context);
		one->worker->next_request = one->worker->first_request;
	}
	free(list->at);
	*list = (struct repetitions){0};
}
