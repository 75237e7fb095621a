// See statics.h. Short lists, and temporary ones.

#include "server/backend/statics.h"

#include <stdlib.h>
#include <string.h>

/* Of variables' names. */
#define NAME_MOST_BYTES 4096u

void statics_add_more(struct statics *statics, const char *why)
{
	if (!statics->more)
		statics->more = why;
}

/* Code is visited in order: facts about the same code follow each other. */
void statics_add_kernel(struct statics *statics, const char *name)
{
	uint32_t count = statics->kernel_count;
	char **grown, *copy;

	if (statics->every || (count && !strcmp(statics->kernels[count - 1], name)))
		return;
	copy = count < STATICS_MAX ? strdup(name) : NULL;
	grown = copy ? realloc(statics->kernels, (count + 1) * sizeof(*grown)) : NULL;
	if (!grown) {
		free(copy);
		statics->every = true;
		return;
	}
	statics->kernels = grown;
	statics->kernels[statics->kernel_count++] = copy;
}

/* Adds a variable before another variable. */
static void insert(struct statics *statics, uint32_t at, const char *name, uint64_t bytes)
{
	size_t length = strnlen(name, NAME_MOST_BYTES);
	struct statics_variable *grown;
	char *copy;

	if (length == NAME_MOST_BYTES || statics->count == STATICS_MAX) {
		statics_add_more(statics, "it has too many variables, or their names are too long");
		return;
	}
	copy = strndup(name, length);
	grown = copy ? realloc(statics->variables, (statics->count + 1) * sizeof(*grown)) : NULL;
	if (!grown) {
		free(copy);
		statics_add_more(statics, "there was no memory to look at its image");
		return;
	}
	memmove(&grown[at + 1], &grown[at], (statics->count - at) * sizeof(*grown));
	grown[at] = (struct statics_variable){copy, bytes};
	statics->variables = grown;
	statics->count++;
}

void statics_add(struct statics *statics, const char *name, uint64_t bytes)
{
	insert(statics, statics->count, name, bytes);
}

static int compare(const void *a, const void *b)
{
	const struct statics_variable *left = a, *right = b;

	return strcmp(left->name, right->name);
}

void statics_sort(struct statics *statics)
{
	if (statics->count)
		qsort(statics->variables, statics->count, sizeof(statics->variables[0]), compare);
}

/* Adds a variable in its place among the sorted, unless present. */
static void merge(struct statics *statics, const struct statics_variable *variable)
{
	uint32_t from = 0, to = statics->count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;
		int order = strcmp(statics->variables[middle].name, variable->name);

		if (!order)
			return;
		if (order < 0)
			from = middle + 1;
		else
			to = middle;
	}
	insert(statics, from, variable->name, variable->bytes);
}

/* A fat binary of some MiB has very many members: variables of earlier members are not sorted again
 * for each. */
void statics_merge(struct statics *statics, const struct statics *other)
{
	for (uint32_t i = 0; i < other->count; i++)
		merge(statics, &other->variables[i]);
	for (uint32_t i = 0; i < other->kernel_count; i++)
		statics_add_kernel(statics, other->kernels[i]);
	statics->every |= other->every;
	statics->calls |= other->calls;
	statics->nests |= other->nests;
	if (other->more)
		statics_add_more(statics, other->more);
}

bool statics_reached_by(const struct statics *statics, const char *kernel)
{
	if (statics->more || (statics->count && statics->every))
		return true;
	for (uint32_t i = 0; statics->count && i < statics->kernel_count; i++)
		if (!strcmp(statics->kernels[i], kernel))
			return true;
	return false;
}

void statics_deinit(struct statics *statics)
{
	for (uint32_t i = 0; i < statics->count; i++)
		free(statics->variables[i].name);
	for (uint32_t i = 0; i < statics->kernel_count; i++)
		free(statics->kernels[i]);
	free(statics->variables);
	free(statics->kernels);
	*statics = (struct statics){0};
}
