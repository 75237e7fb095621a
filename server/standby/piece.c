// See piece.h.

#include "server/standby/piece.h"

#include <stdlib.h>

#include "server/log.h"
#include "server/session/chunk.h"
#include "server/session/holdings.h"

/* An entry with its position in history. */
struct item {
	struct holding *entry;
	uint32_t index;
};

static int compare_items(const void *left, const void *right)
{
	const struct item *a = left, *b = right;

	if (a->entry->chunk != b->entry->chunk)
		return (uintptr_t)a->entry->chunk < (uintptr_t)b->entry->chunk ? -1 : 1;
	return (a->index > b->index) - (a->index < b->index);
}

static int compare_pieces(const void *left, const void *right)
{
	uint64_t a = ((const struct piece *)left)->offset, b = ((const struct piece *)right)->offset;

	return (a > b) - (a < b);
}

/* By chunk; entries of a chunk in their order. */
static struct item *list_items(const struct holdings *holdings, uint32_t *ret_count)
{
	struct item *items = calloc(holdings->count + 1, sizeof(*items));
	struct holding *entry;
	uint32_t count = 0, index = 0;

	log_bug_on(!items);
	TAILQ_FOREACH (entry, &holdings->entries, link) {
		index++;
		if (entry->chunk && !chunk_is_host(entry->chunk) &&
			(entry->type == WIRE_MAP_MEMORY || entry->type == WIRE_CREATE_MEMORY))
			items[count++] = (struct item){entry, index};
	}
	qsort(items, count, sizeof(*items), compare_items);
	*ret_count = count;
	return items;
}

void pieces_init(struct pieces *pieces, const struct holdings *holdings)
{
	uint32_t count;
	struct item *items = list_items(holdings, &count);
	struct piece *piece = NULL;

	*pieces = (struct pieces){.entries = calloc(count + 1, sizeof(*pieces->entries)),
		.at = calloc(count + 1, sizeof(*pieces->at))};
	log_bug_on(!pieces->entries || !pieces->at);
	for (uint32_t i = 0; i < count; i++) {
		struct holding *entry = pieces->entries[i] = items[i].entry;

		if (!piece || piece->chunk != entry->chunk) {
			piece = &pieces->at[pieces->count++];
			*piece = (struct piece){.chunk = entry->chunk,
				.entries = &pieces->entries[i],
				.bytes = entry->range.bytes,
				.offset = items[i].index};
		}
		piece->count++;
	}
	free(items);
	qsort(pieces->at, pieces->count, sizeof(*pieces->at), compare_pieces);
	for (uint32_t i = 0; i < pieces->count; i++) {
		pieces->at[i].offset = pieces->bytes;
		pieces->bytes += pieces->at[i].bytes;
	}
}

void pieces_deinit(struct pieces *pieces)
{
	free(pieces->entries);
	free(pieces->at);
	*pieces = (struct pieces){0};
}

const struct holding *piece_mapping(const struct piece *piece)
{
	for (uint32_t i = 0; i < piece->count; i++)
		if (piece->entries[i]->type == WIRE_MAP_MEMORY)
			return piece->entries[i];
	return NULL;
}
