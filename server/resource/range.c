// See range.h.

#include "server/resource/range.h"

#include "server/session/holdings.h"

int range_fill(struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	(void)values;
	entry->range = message->range;
	return 0;
}

void range_again(const struct holding *entry, struct wire_message *message)
{
	message->range = entry->range;
}

bool range_has(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings_find_range(holdings, message->type, message->range.address, message->range.bytes);
}
