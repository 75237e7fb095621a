// Which chunks exist: the handle of every piece of physical memory the keeper made and has not
// released. Embedded in the keeper, one thread.

#ifndef FRMPS_SERVER_KEEPER_LEDGER_H
#define FRMPS_SERVER_KEEPER_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ledger {
	uint64_t *handles;
	size_t count, capacity;
};

void ledger_init(struct ledger *ledger);
/** Frees the list; chunks still in it are the caller's to release before. */
void ledger_deinit(struct ledger *ledger);
/** Makes room for one more, so that ledger_add() cannot fail. Return: whether there is room */
bool ledger_reserve(struct ledger *ledger);
void ledger_add(struct ledger *ledger, uint64_t handle);
/** Return: whether it was there */
bool ledger_remove(struct ledger *ledger, uint64_t handle);

#endif
