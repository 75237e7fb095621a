// See scarce.h.

#include "tests/lib/scarce.h"

#include <stdlib.h>
#include <sys/resource.h>

struct block {
	struct block *next;
};

static struct block *taken;
static struct rlimit before;

void scarce_begin(void)
{
	struct rlimit none;
	struct block *block;

	if (getrlimit(RLIMIT_AS, &before) < 0)
		abort();
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
	if (setrlimit(RLIMIT_AS, &none) < 0)
		abort();
	for (size_t bytes = 65536; bytes >= sizeof(*block); bytes /= 2)
		while ((block = malloc(bytes))) {
			block->next = taken;
			taken = block;
		}
}

void scarce_end(void)
{
	struct block *block;

	while ((block = taken)) {
		taken = block->next;
		free(block);
	}
	if (setrlimit(RLIMIT_AS, &before) < 0)
		abort();
}
