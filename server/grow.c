// See grow.h.

#include "server/grow.h"

#include <stdlib.h>
#include <string.h>

bool grow(void *array, uint32_t count, uint32_t *room, size_t bytes)
{
	const uint32_t more = *room ? 2 * *room : 16;
	void *at;

	if (count < *room)
		return true;
	/* A pointer of any type is at the address. */
	memcpy(&at, array, sizeof(at));
	at = reallocarray(at, more, bytes);
	if (!at)
		return false;
	memcpy(array, &at, sizeof(at));
	*room = more;
	return true;
}
