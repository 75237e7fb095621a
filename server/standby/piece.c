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
	const struct piece *a = left, *b = right;

	return (a->first > b->first) - (a->first < b->first);
}

static bool is_piece(const struct holding *entry)
{
	return entry->chunk && !chunk_is_host(entry->chunk) &&
	       (entry->type == WIRE_MAP_MEMORY || entry->type == WIRE_CREATE_MEMORY);
}

/* By chunk; entries of a chunk in their order. */
static struct item *list_items(
	const struct holdings *const *sessions, uint32_t session_count, uint32_t *ret_count)
{
	struct holding *entry;
	struct item *items;
	uint32_t room = 1, count = 0, index = 0;

	for (uint32_t i = 0; i < session_count; i++)
		room += sessions[i]->count;
	items = calloc(room, sizeof(*items));
	log_bug_on(!items);
	for (uint32_t i = 0; i < session_count; i++)
		TAILQ_FOREACH (entry, &sessions[i]->entries, link) {
			index++;
			if (is_piece(entry))
				items[count++] = (struct item){entry, index};
		}
	qsort(items, count, sizeof(*items), compare_items);
	*ret_count = count;
	return items;
}

void pieces_init(struct pieces *pieces, const struct holdings *const *sessions, uint32_t session_count)
{
	uint32_t count;
	struct item *items = list_items(sessions, session_count, &count);
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
				.first = items[i].index};
			pieces->bytes += piece->bytes;
		}
		piece->count++;
	}
	free(items);
	qsort(pieces->at, pieces->count, sizeof(*pieces->at), compare_pieces);
}

void pieces_deinit(struct pieces *pieces)
{
	free(pieces->entries);
	free(pieces->at);
	*pieces = (struct pieces){0};
}

void pieces_place(const struct pieces *pieces)
{
	uint64_t place = 0;

	for (uint32_t i = 0; i < pieces->count; i++) {
		pieces->at[i].chunk->place = place;
		place += pieces->at[i].bytes;
	}
}

struct holding *piece_mapping(const struct piece *piece)
{
	for (uint32_t i = 0; i < piece->count; i++)
		if (piece->entries[i]->type == WIRE_MAP_MEMORY)
			return piece->entries[i];
	return NULL;
}
