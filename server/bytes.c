// See bytes.h.

#include "server/bytes.h"

#include <stdio.h>

const char *bytes_text(char text[BYTES_TEXT], uint64_t bytes)
{
	static const char *const units[] = {"", "K", "M", "G", "T"};
	double value = (double)bytes;
	unsigned unit = 0;
	uint64_t tenths;

	while (unit < 4 && (value >= 9999.95 || (bytes && bytes % (UINT64_C(1024) << (10 * unit)) == 0))) {
		value /= 1024;
		unit++;
	}
	tenths = (uint64_t)(value * 10 + 0.5);
	if (tenths % 10)
		snprintf(text, BYTES_TEXT, "%llu.%llu%s", (unsigned long long)(tenths / 10),
			(unsigned long long)(tenths % 10), units[unit]);
	else
		snprintf(text, BYTES_TEXT, "%llu%s", (unsigned long long)(tenths / 10), units[unit]);
	return text;
}
