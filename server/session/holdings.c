// The holdings. See holdings.h. A list, searched from its end where requests look for recent
// entries. The look-ups of each mapping do not search the list, for a session may have very many
// functions.

#include "server/session/holdings.h"

#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"
#include "server/session/window.h"

void holdings_init(struct holdings *holdings)
{
	memset(holdings, 0, sizeof(*holdings));
	TAILQ_INIT(&holdings->entries);
	TAILQ_INIT(&holdings->memories);
	RB_INIT(&holdings->ranges);
}

static int compare(const struct holding *a, const struct holding *b)
{
	return (a->range.address > b->range.address) - (a->range.address < b->range.address);
}

RB_GENERATE_STATIC(holding_tree, holding, range_link, compare)

static bool is_range(const struct holding *entry)
{
	return entry->type == WIRE_MAP_MEMORY || entry->type == WIRE_MAP_HOST;
}

/* The lowest mapping that ends behind an address, NULL if there is none. */
static struct holding *find_behind(const struct holdings *holdings, uint64_t address)
{
	struct holding *at = RB_ROOT(&holdings->ranges), *found = NULL;

	while (at) {
		bool ends_behind = at->range.address + at->range.bytes > address;

		found = ends_behind ? at : found;
		at = ends_behind ? RB_LEFT(at, range_link) : RB_RIGHT(at, range_link);
	}
	return found;
}

/* Device memory that a limit needs beyond the need of each context. The stack exists for all
 * threads that can run at a time. */
static uint64_t limit_bytes(const struct backend_device *device, const struct wire_limit *limit)
{
	uint64_t threads, bytes;

	if (limit->limit == CU_LIMIT_MALLOC_HEAP_SIZE)
		return limit->value;
	if (limit->limit != CU_LIMIT_STACK_SIZE || limit->value <= device->limits[CU_LIMIT_STACK_SIZE])
		return 0;
	threads = (uint64_t)device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] *
		  (uint64_t)device->attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
	if (__builtin_mul_overflow(limit->value - device->limits[CU_LIMIT_STACK_SIZE], threads, &bytes))
		return UINT64_MAX;
	return bytes;
}

/* As device memory. Mappings of a handle count with the handle. */
static bool counts(const struct holding *entry)
{
	return (entry->type == WIRE_CREATE_MEMORY && (!entry->chunk || chunk_is_own(entry->chunk))) ||
	       entry->type == WIRE_SET_LIMIT || (entry->type == WIRE_MAP_MEMORY && !entry->memory);
}

static bool counts_as_host(const struct holding *entry)
{
	return (entry->type == WIRE_CREATE_MEMORY && chunk_is_host(entry->chunk) && !entry->chunk->lease) ||
	       (entry->type == WIRE_MAP_HOST && !entry->memory);
}

static bool is_borrowed(const struct holding *entry)
{
	return entry->chunk && entry->chunk->kind == CHUNK_BORROWED;
}

static uint32_t fds_of(const struct holding *entry)
{
	bool is_leased = entry->chunk && entry->chunk->lease;

	return (uint32_t)(entry->fd || entry->chunk) + (uint32_t)is_leased;
}

/* The sum to which an entry adds that owns its memory. */
static uint64_t *sum_of(struct holdings *holdings, const struct holding *entry)
{
	return entry->chunk && holdings->away ? &holdings->away_bytes : &holdings->owned_bytes;
}

static bool others_own(const struct holdings *holdings, const struct chunk *chunk)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &chunk->owners, owners_link)
		if (entry->holdings != holdings)
			return true;
	return false;
}

void holdings_note_sharing(struct chunk *chunk)
{
	struct holding *entry = TAILQ_FIRST(&chunk->owners);
	const bool is_shared = chunk->offer || chunk->lent != CHUNK_NOT_LENT ||
			       (entry && others_own(entry->holdings, chunk));

	if (is_shared == chunk->is_shared)
		return;
	chunk->is_shared = is_shared;
	for (; entry; entry = TAILQ_NEXT(entry, owners_link))
		entry->holdings->shared_count += is_shared ? 1 : UINT32_MAX;
}

static void own(struct holdings *holdings, struct holding *entry)
{
	struct chunk *chunk = entry->chunk;

	if (!chunk || TAILQ_EMPTY(&chunk->owners))
		*sum_of(holdings, entry) += entry->range.bytes;
	if (!chunk)
		return;
	TAILQ_INSERT_TAIL(&chunk->owners, entry, owners_link);
	holdings->shared_count += chunk->is_shared;
	holdings_note_sharing(chunk);
}

static void disown(struct holdings *holdings, struct holding *entry)
{
	struct chunk *chunk = entry->chunk;
	bool owns = !chunk || TAILQ_FIRST(&chunk->owners) == entry;
	struct holding *next;

	if (owns)
		*sum_of(holdings, entry) -= entry->range.bytes;
	if (!chunk)
		return;
	TAILQ_REMOVE(&chunk->owners, entry, owners_link);
	holdings->shared_count -= chunk->is_shared;
	holdings_note_sharing(chunk);
	next = owns ? TAILQ_FIRST(&chunk->owners) : NULL;
	if (next)
		*sum_of(next->holdings, next) += next->range.bytes;
}

/* The bits of the ids in use, for the entry's kind; NULL: entries of this kind have no id. */
static uint64_t *id_words(struct holdings *holdings, const struct holding *entry)
{
	switch (entry->type) {
	case WIRE_MAKE_GRAPH:
		return holdings->graphs;
	case WIRE_MAKE_ARRAY:
		return holdings->arrays;
	case WIRE_BACK_ARRAY:
		return holdings->backed;
	case WIRE_MAKE_OBJECT:
		return holdings->objects;
	default:
		return NULL;
	}
}

void holdings_remove(struct holdings *holdings, struct holding *entry)
{
	uint64_t *ids = id_words(holdings, entry);

	TAILQ_REMOVE(&holdings->entries, entry, link);
	if (is_range(entry))
		RB_REMOVE(holding_tree, &holdings->ranges, entry);
	if (entry->type == WIRE_CREATE_MEMORY)
		TAILQ_REMOVE(&holdings->memories, entry, memory_link);
	holdings->backed_count -= entry->type == WIRE_BACK_ARRAY;
	holdings->shared_count -= is_borrowed(entry);
	holdings->untold -= entry->is_untold;
	holdings->count--;
	holdings->kept_bytes -= holding_kept_bytes(entry);
	holdings->record_bytes -= holding_record_bytes(entry);
	holdings->fds -= fds_of(entry);
	if (counts(entry)) {
		holdings->memory_bytes -= entry->range.bytes;
		if (!holdings->disowned)
			disown(holdings, entry);
	}
	if (entry->chunk)
		entry->chunk->holders--;
	holdings->windows -= entry->type == WIRE_RESERVE_WINDOW;
	if (entry->type == WIRE_RESERVE_WINDOW && holdings->window_set)
		window_give(holdings->window_set, entry->range.address);
	if (counts_as_host(entry))
		holdings->host_bytes -= entry->range.bytes;
	if (entry->type == WIRE_LOAD_MODULE) {
		holdings->image_bytes -= entry->image_bytes + entry->unpacked_bytes;
		holdings->modules[entry->module / 64] &= ~(UINT64_C(1) << entry->module % 64);
	}
	if (entry->type == WIRE_FIND_FUNCTION)
		holdings->module_of[entry->function] = 0;
	if (ids)
		ids[entry->attribute / 64] &= ~(UINT64_C(1) << entry->attribute % 64);
	chunk_leave(entry->chunk);
	store_drop(holdings->store, entry->record);
	holding_free(entry);
}

void holdings_add(struct holdings *holdings, struct holding *entry)
{
	uint64_t *ids = id_words(holdings, entry);

	TAILQ_INSERT_TAIL(&holdings->entries, entry, link);
	if (is_range(entry))
		log_bug_on(RB_INSERT(holding_tree, &holdings->ranges, entry));
	if (entry->type == WIRE_CREATE_MEMORY)
		TAILQ_INSERT_TAIL(&holdings->memories, entry, memory_link);
	holdings->backed_count += entry->type == WIRE_BACK_ARRAY;
	holdings->shared_count += is_borrowed(entry);
	entry->holdings = holdings;
	holdings->count++;
	holdings->kept_bytes += holding_kept_bytes(entry);
	holdings->record_bytes += holding_record_bytes(entry);
	holdings->fds += fds_of(entry);
	if (counts(entry)) {
		holdings->memory_bytes += entry->range.bytes;
		own(holdings, entry);
	}
	if (entry->chunk)
		entry->chunk->holders++;
	holdings->windows += entry->type == WIRE_RESERVE_WINDOW;
	if (counts_as_host(entry))
		holdings->host_bytes += entry->range.bytes;
	if (entry->type == WIRE_LOAD_MODULE) {
		holdings->image_bytes += entry->image_bytes + entry->unpacked_bytes;
		holdings->modules[entry->module / 64] |= UINT64_C(1) << entry->module % 64;
	}
	if (entry->type == WIRE_FIND_FUNCTION)
		holdings->module_of[entry->function] = (uint16_t)entry->module;
	if (ids)
		ids[entry->attribute / 64] |= UINT64_C(1) << entry->attribute % 64;
}

void holdings_give_chunk(struct holdings *holdings, struct holding *entry, struct chunk *chunk)
{
	log_bug_on(entry->type != WIRE_MAP_HOST || entry->chunk);
	entry->fd = shared_fd_unref(entry->fd);
	entry->chunk = chunk;
	chunk->holders++;
	holdings_save(holdings, entry);
}

void holdings_deinit(struct holdings *holdings)
{
	struct holding *entry;

	while ((entry = TAILQ_FIRST(&holdings->entries)))
		holdings_remove(holdings, entry);
}

bool holdings_has_module(const struct holdings *holdings, uint32_t module)
{
	return module < HOLDINGS_IDS && (holdings->modules[module / 64] >> module % 64 & 1);
}

bool holdings_has_function(const struct holdings *holdings, uint32_t function)
{
	return function < HOLDINGS_IDS && holdings->module_of[function];
}

bool holdings_has_graph(const struct holdings *holdings, uint32_t graph)
{
	return graph < FRMPS_GRAPH_IDS && (holdings->graphs[graph / 64] >> graph % 64 & 1);
}

bool holdings_has_array(const struct holdings *holdings, uint32_t array)
{
	return array < FRMPS_ARRAY_IDS && (holdings->arrays[array / 64] >> array % 64 & 1);
}

bool holdings_has_backed(const struct holdings *holdings, uint32_t array)
{
	return array < FRMPS_ARRAY_IDS && (holdings->backed[array / 64] >> array % 64 & 1);
}

bool holdings_has_object(const struct holdings *holdings, uint32_t object)
{
	return object < FRMPS_OBJECT_IDS && (holdings->objects[object / 64] >> object % 64 & 1);
}

static bool touch(const struct wire_range *a, const struct wire_range *b)
{
	return a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

bool holdings_backs_array(const struct holdings *holdings, const struct wire_range *range)
{
	const struct holding *entry;

	if (!holdings->backed_count)
		return false;
	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->type == WIRE_BACK_ARRAY && touch(&entry->range, range))
			return true;
	return false;
}

bool holdings_overlaps(const struct holdings *holdings, const struct wire_range *range)
{
	const struct holding *entry = find_behind(holdings, range->address);

	return entry && touch(&entry->range, range);
}

struct holding *holdings_find_range(
	const struct holdings *holdings, enum wire_type type, uint64_t address, uint64_t bytes)
{
	struct holding *entry = NULL;

	if (type == WIRE_MAP_MEMORY || type == WIRE_MAP_HOST) {
		entry = find_behind(holdings, address);
		return entry && entry->type == type && entry->range.address == address &&
				       entry->range.bytes == bytes
			       ? entry
			       : NULL;
	}
	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->type == type && entry->range.address == address && entry->range.bytes == bytes)
			return entry;
	return NULL;
}

struct holding *holdings_find_memory(const struct holdings *holdings, uint64_t handle)
{
	struct holding *entry;

	TAILQ_FOREACH_REVERSE (entry, &holdings->memories, memory_list, memory_link)
		if (entry->memory == handle)
			return entry;
	return NULL;
}

uint64_t holdings_limit_bytes(const struct holdings *holdings, const struct wire_limit *limit)
{
	return limit_bytes(holdings->device, limit);
}

void holdings_set_limit(struct holdings *holdings, struct holding *entry, const struct wire_limit *limit)
{
	uint64_t bytes = holdings_limit_bytes(holdings, limit);

	holdings->memory_bytes += bytes - entry->range.bytes;
	holdings->owned_bytes += bytes - entry->range.bytes;
	entry->range.bytes = bytes;
}

uint64_t holdings_limit_growth(const struct holdings *holdings, const struct wire_limit *limit)
{
	uint64_t bytes = holdings_limit_bytes(holdings, limit);
	const struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->type == WIRE_SET_LIMIT && entry->attribute == limit->limit)
			return bytes > entry->range.bytes ? bytes - entry->range.bytes : 0;
	return bytes;
}

/* What limits take, which never leaves the device. */
static uint64_t fixed_bytes(const struct holdings *holdings)
{
	const struct holding *entry;
	uint64_t bytes = 0;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		bytes += counts(entry) && !entry->chunk ? entry->range.bytes : 0;
	return bytes;
}

uint64_t holdings_chunk_bytes(const struct holdings *holdings)
{
	return holdings->owned_bytes - fixed_bytes(holdings);
}

uint64_t holdings_mapped_bytes(const struct holdings *holdings)
{
	return holdings->away ? fixed_bytes(holdings) : holdings->memory_bytes;
}

uint64_t holdings_sole_bytes(const struct holdings *holdings)
{
	const struct holding *entry;
	uint64_t bytes = holdings->owned_bytes;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (counts(entry) && entry->chunk && TAILQ_FIRST(&entry->chunk->owners) == entry &&
			others_own(holdings, entry->chunk))
			bytes -= entry->range.bytes;
	return bytes;
}

bool holdings_is_only_memory(const struct holdings *holdings, const struct holding *memory)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->memories, memory_link)
		if (entry != memory && entry->chunk == memory->chunk)
			return false;
	return true;
}

struct holding *holdings_find_mapping(const struct holdings *holdings, const struct chunk *chunk)
{
	struct holding *entry;

	RB_FOREACH(entry, holding_tree, (struct holding_tree *)(uintptr_t)&holdings->ranges)
	if (chunk && entry->chunk == chunk)
		return entry;
	return NULL;
}

struct holding *holdings_find_address(const struct holdings *holdings, uint64_t address)
{
	struct holding *entry = find_behind(holdings, address);

	return entry && entry->range.address <= address ? entry : NULL;
}

/* The latest handle for a chunk. */
struct holding *holdings_find_created(const struct holdings *holdings, const struct chunk *chunk)
{
	struct holding *entry;

	TAILQ_FOREACH_REVERSE (entry, &holdings->memories, memory_list, memory_link)
		if (entry->chunk == chunk)
			return entry;
	return NULL;
}

struct holding *holdings_find_token(const struct holdings *holdings, const uint64_t token[2])
{
	struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->chunk && entry->type != WIRE_BACK_ARRAY && entry->chunk->token[0] == token[0] &&
			entry->chunk->token[1] == token[1])
			return entry;
	return NULL;
}

void holdings_save(struct holdings *holdings, struct holding *entry)
{
	holding_save(entry, holdings->store, holdings->session);
}

void holdings_disown(struct holdings *holdings)
{
	struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (counts(entry))
			disown(holdings, entry);
	holdings->disowned = true;
}

void holdings_set_away(struct holdings *holdings, bool away)
{
	struct holding *entry;

	if (holdings->away == away)
		return;
	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (counts(entry))
			disown(holdings, entry);
	holdings->away = away;
	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (counts(entry))
			own(holdings, entry);
}

void holdings_remove_id(struct holdings *holdings, enum wire_type type, uint32_t id)
{
	struct holding *entry;

	TAILQ_FOREACH_REVERSE (entry, &holdings->entries, holding_list, link) {
		if (entry->type == type && entry->attribute == id) {
			holdings_remove(holdings, entry);
			return;
		}
	}
}
