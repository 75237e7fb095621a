// The list of chunks. Recent chunks are released most often, so the search goes from the end.

#include "server/keeper/ledger.h"

#include <stdlib.h>

void ledger_init(struct ledger *ledger)
{
	*ledger = (struct ledger){0};
}

void ledger_deinit(struct ledger *ledger)
{
	free(ledger->handles);
	*ledger = (struct ledger){0};
}

bool ledger_reserve(struct ledger *ledger)
{
	size_t capacity = ledger->capacity ? 2 * ledger->capacity : 64;
	uint64_t *handles;

	if (ledger->count < ledger->capacity)
		return true;
	handles = reallocarray(ledger->handles, capacity, sizeof(*handles));
	if (!handles)
		return false;
	ledger->handles = handles;
	ledger->capacity = capacity;
	return true;
}

void ledger_add(struct ledger *ledger, uint64_t handle)
{
	ledger->handles[ledger->count++] = handle;
}

bool ledger_remove(struct ledger *ledger, uint64_t handle)
{
	for (size_t i = ledger->count; i-- > 0;) {
		if (ledger->handles[i] != handle)
			continue;
		ledger->handles[i] = ledger->handles[--ledger->count];
		return true;
	}
	return false;
}
