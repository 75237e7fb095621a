// See gpus.h.

#include "server/tools/gpus.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>

unsigned gpus_count(const char *root)
{
	char pattern[PATH_MAX];
	glob_t files = {0};
	unsigned count;

	snprintf(pattern, sizeof(pattern), "%s/dev/nvidia[0-9]*", root);
	count = glob(pattern, GLOB_NOSORT, NULL, &files) ? 0 : (unsigned)files.gl_pathc;
	globfree(&files);
	return count;
}

bool gpus_list_fewer(const struct ask_devices *devices, unsigned gpus, char ret_list[GPUS_LIST_BYTES])
{
	unsigned listed = 0;
	size_t used = 0;

	for (unsigned i = 0; i < devices->count; i++)
		if (*devices->uuid[i])
			used += (size_t)snprintf(ret_list + used, GPUS_LIST_BYTES - used, "%s%s",
				listed++ ? "," : "", devices->uuid[i]);
	return listed && listed < gpus;
}
