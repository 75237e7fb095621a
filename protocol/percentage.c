// See percentage.h.

#include "protocol/percentage.h"

#include <stdlib.h>
#include <string.h>

bool percentage_parse(const char *text, uint32_t *ret_percent)
{
	char *end;
	unsigned long percent = strtoul(text, &end, 10);

	if (*end == '.')
		end += 1 + strspn(end + 1, "0123456789");
	*ret_percent = (uint32_t)percent;
	return *text >= '0' && *text <= '9' && !*end && percent >= 1 && percent <= 100;
}
