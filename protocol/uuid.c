// See uuid.h.

#include "protocol/uuid.h"

#include <stdio.h>
#include <string.h>

void uuid_text(const uint8_t uuid[16], char ret_text[UUID_TEXT])
{
	int used = snprintf(ret_text, UUID_TEXT, "GPU");

	for (int i = 0; i < 16; i++)
		used += snprintf(ret_text + used, UUID_TEXT - (size_t)used, "%s%02x",
			i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

int uuid_find(const char *text, size_t length, int count, const uint8_t (*uuids)[16])
{
	char whole[UUID_TEXT];
	int found = -1;

	if (length <= strlen("GPU-") || length >= sizeof(whole))
		return -1;
	for (int i = 0; i < count; i++) {
		uuid_text(uuids[i], whole);
		if (strncmp(text, whole, length) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}
