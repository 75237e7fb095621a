// See environment.h.

#include "server/environment.h"

#include <stdlib.h>

#include "server/log.h"

uint64_t environment_number(const char *name, uint64_t otherwise, uint64_t least, uint64_t most)
{
	const char *text = getenv(name);
	unsigned long long value;
	char *end;

	if (!text || !*text)
		return otherwise;
	value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || value < least || value > most) {
		log_warning("%s=%s is ignored: it is no number from %llu to %llu", name, text,
			(unsigned long long)least, (unsigned long long)most);
		return otherwise;
	}
	return value;
}
