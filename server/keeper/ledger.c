// The list of chunks. Recent chunks are released most often, so the search goes from the end.

#include "server/keeper/ledger.h"

#include <stdlib.h>

#include "server/grow.h"

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
	return grow(&ledger->handles, ledger->count, &ledger->room, sizeof(*ledger->handles));
}

void ledger_add(struct ledger *ledger, uint64_t handle)
{
	ledger->handles[ledger->count++] = handle;
}

bool ledger_remove(struct ledger *ledger, uint64_t handle)
{
	for (uint32_t i = ledger->count; i-- > 0;) {
		if (ledger->handles[i] != handle)
			continue;
		ledger->handles[i] = ledger->handles[--ledger->count];
		return true;
	}
	return false;
}
