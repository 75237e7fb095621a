// The list of chunks: the handle of every piece of physical memory that the keeper has made and not
// released. Embedded in the keeper, one thread.

#ifndef FRMPS_SERVER_KEEPER_LEDGER_H
#define FRMPS_SERVER_KEEPER_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

struct ledger {
	uint64_t *handles;
	uint32_t count, room;
};

void ledger_init(struct ledger *ledger);
/** Frees the list; the caller has released the remaining chunks before. */
void ledger_deinit(struct ledger *ledger);
/** Makes room for another handle, so that ledger_add() cannot fail. Return: false without memory */
bool ledger_reserve(struct ledger *ledger);
void ledger_add(struct ledger *ledger, uint64_t handle);
/** Return: true if the handle was in the list */
bool ledger_remove(struct ledger *ledger, uint64_t handle);

#endif
