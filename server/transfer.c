// See transfer.h. A word has the number and the state of the latest transfer.

#include "server/transfer.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

enum transfer_state { TRANSFER_CLOSED, TRANSFER_OPEN, TRANSFER_TAKEN };

#define STATE_BITS 2u
/* Numbers begin anew, without 0. */
#define NUMBERS (UINT32_C(1) << (32 - STATE_BITS))

struct transfers *transfers_new(void)
{
	struct transfers *transfers =
		mmap(NULL, sizeof(*transfers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (transfers == MAP_FAILED)
		return NULL;
	if (getrandom(transfers->key, sizeof(transfers->key), 0) == (ssize_t)sizeof(transfers->key))
		return transfers;
	munmap(transfers, sizeof(*transfers));
	return NULL;
}

static word32 *word_of(struct transfers *transfers, const struct transfer *transfer)
{
	return &transfers->words[transfer->from][transfer->to];
}

static uint32_t value_of(const struct transfer *transfer, enum transfer_state state)
{
	return transfer->number << STATE_BITS | state;
}

struct transfer transfer_open(struct transfers *transfers, uint32_t from, uint32_t to)
{
	struct transfer transfer = {.from = from, .to = to};
	uint32_t latest = word_acquire(word_of(transfers, &transfer)) >> STATE_BITS;

	transfer.number = latest + 1 < NUMBERS ? latest + 1 : 1;
	word_release(word_of(transfers, &transfer), value_of(&transfer, TRANSFER_OPEN));
	return transfer;
}

static bool settle(struct transfers *transfers, const struct transfer *transfer, enum transfer_state state)
{
	uint32_t open = value_of(transfer, TRANSFER_OPEN);

	return atomic_compare_exchange_strong(word_of(transfers, transfer), &open, value_of(transfer, state));
}

bool transfer_take(struct transfers *transfers, const struct transfer *transfer)
{
	return settle(transfers, transfer, TRANSFER_TAKEN);
}

bool transfer_close(struct transfers *transfers, const struct transfer *transfer)
{
	return settle(transfers, transfer, TRANSFER_CLOSED) ||
	       word_acquire(word_of(transfers, transfer)) != value_of(transfer, TRANSFER_TAKEN);
}
