// See maps.h.

#include "client/state/maps.h"

#include <stdlib.h>
#include <string.h>

bool maps_read_line(const char *line, struct mapping *ret_mapping)
{
	struct mapping mapping;
	char *rest;

	mapping.from = strtoull(line, &rest, 16);
	if (*rest != '-')
		return false;
	mapping.to = strtoull(rest + 1, &rest, 16);
	mapping.modes = rest + 1;
	rest = strchr(rest + 1, ' ');
	if (!rest)
		return false;
	mapping.offset = strtoull(rest, &rest, 16);
	mapping.device[0] = (unsigned int)strtoul(rest, &rest, 16);
	if (*rest != ':')
		return false;
	mapping.device[1] = (unsigned int)strtoul(rest + 1, &rest, 16);
	mapping.inode = strtoull(rest, &rest, 10);
	mapping.path = rest + strspn(rest, " ");
	*ret_mapping = mapping;
	return true;
}

const char *maps_next_line(const char *line)
{
	line = strchr(line, '\n');
	return line && line[1] ? line + 1 : NULL;
}

bool maps_find(const char *maps, uint64_t address, struct mapping *ret_mapping)
{
	for (const char *line = maps; line; line = maps_next_line(line))
		if (maps_read_line(line, ret_mapping) && address >= ret_mapping->from &&
			address < ret_mapping->to)
			return true;
	return false;
}

bool maps_is_same_file(const struct mapping *one, const struct mapping *other)
{
	return one->inode == other->inode && memcmp(one->device, other->device, sizeof(one->device)) == 0;
}
