// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The list of chunks. Recent chunks are released most often, so the search goes from the end.

#include "server/keeper/ledger.h"

#include <stdlib.h>

void ledger_init(struct ledger *ledger)
{
	*ledger = (struct ledger){0};
}

void ledger_deinit(struct ledger *ledger)
{
	free(ledger->chunks);
	*ledger = (struct ledger){0};
}

bool ledger_reserve(struct ledger *ledger)
{
	size_t capacity = ledger->capacity ? 2 * ledger->capacity : 64;
	struct ledger_chunk *chunks;

	if (ledger->count < ledger->capacity)
		return true;
	chunks = reallocarray(ledger->chunks, capacity, sizeof(*chunks));
	if (!chunks)
		return false;
	ledger->chunks = chunks;
	ledger->capacity = capacity;
	return true;
}

void ledger_add(struct ledger *ledger, uint64_t handle, uint64_t bytes)
{
	ledger->chunks[ledger->count++] = (struct ledger_chunk){handle, bytes};
	ledger->total_bytes += bytes;
}

bool ledger_remove(struct ledger *ledger, uint64_t handle)
{
	for (size_t i = ledger->count; i-- > 0;) {
		if (ledger->chunks[i].handle != handle)
			continue;
		ledger->total_bytes -= ledger->chunks[i].bytes;
		ledger->chunks[i] = ledger->chunks[--ledger->count];
		return true;
	}
	return false;
}
