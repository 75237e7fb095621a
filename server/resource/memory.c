// Device memory: mapped ranges, and memory with a handle, which is device or host memory.

#include "server/resource/resource.h"

#include "server/backend/backend.h"
#include "server/loop/shared_fd.h"
#include "server/resource/check.h"
#include "server/resource/range.h"
#include "server/session/chunk.h"
#include "server/session/holdings.h"
#include "server/session/request.h"
#include "server/session/session.h"

/*
 * Ranges
 */

static int check_mapping(struct check *check, const struct wire_message *message)
{
	return check_map(check, &message->range, true);
}

static int check_unmapping(struct check *check, const struct wire_message *message)
{
	return check_unmap(check, &message->range, true);
}

const struct resource resource_memory_map = {
	.check = check_mapping, .fill = range_fill, .again = range_again, .has = range_has};
const struct resource resource_memory_unmap = {.check = check_unmapping};

/*
 * Handles
 */

/* A new handle, for memory that is made or imported. */
static int check_new(struct check *check, const struct wire_memory *memory)
{
	if (!memory->handle || holdings_find_memory(check->holdings, memory->handle))
		return check_broken(check, "handle of memory is zero or in use");
	return 0;
}

static int check_create(struct check *check, const struct wire_message *message)
{
	const struct wire_memory *memory = &message->memory;
	int r = check_new(check, memory);

	if (r)
		return r;
	if (!memory->bytes || memory->bytes % BACKEND_CHUNK_GRANULE)
		return check_broken(check, "size of memory is zero or not aligned");
	return memory->host ? check_pinned_limit(check, memory->bytes)
			    : check_memory_limit(check, memory->bytes);
}

static int check_import(struct check *check, const struct wire_message *message)
{
	return check_new(check, &message->memory);
}

static int check_release(struct check *check, const struct wire_message *message)
{
	const struct holding *entry = holdings_find_memory(check->holdings, message->memory.handle);

	if (!entry)
		return check_answer(check, CUDA_ERROR_INVALID_HANDLE);
	if (holdings_find_mapping(check->holdings, entry->chunk) &&
		holdings_is_only_memory(check->holdings, entry))
		return check_broken(check, "memory that is mapped was released");
	return 0;
}

static int check_map_handle(struct check *check, const struct wire_message *message)
{
	const struct wire_memory *memory = &message->memory;
	const struct holding *entry = holdings_find_memory(check->holdings, memory->handle);
	const struct wire_range range = {.address = memory->address, .bytes = memory->bytes};
	bool is_host = entry && chunk_is_host(entry->chunk);

	/* An earlier life of the daemon may have left a handle without its memory. */
	if (!entry || !entry->chunk)
		return check_answer(check, CUDA_ERROR_INVALID_HANDLE);
	if (range.bytes != entry->range.bytes || range.address % BACKEND_CHUNK_GRANULE)
		return check_broken(check, "memory is mapped partly or not aligned");
	if (!check_inside_part(check, &range, !is_host) && !check_inside_windows(check, &range, !is_host))
		return is_host ? check_answer(check, CUDA_ERROR_NOT_SUPPORTED)
			       : check_broken(check, "range lies outside the session's windows");
	if (holdings_overlaps(check->holdings, &range))
		return check_broken(check, "range overlaps one that is mapped");
	return 0;
}

static int fill_handle(
	struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	(void)values;
	entry->type = WIRE_CREATE_MEMORY; /* also for imported memory */
	entry->memory = message->memory.handle;
	entry->range.bytes = message->memory.bytes;
	return 0;
}

static bool has_handle(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings_find_memory(holdings, message->memory.handle);
}

/* Of device memory. True if commands of this session are not all that writes to the mapping: the
 * session has another one of the memory, or another device has. */
static bool is_aliased(const struct holdings *holdings, const struct chunk *chunk)
{
	return !chunk_is_own(chunk) || holdings_find_mapping(holdings, chunk);
}

static uint32_t mapping_flags(const struct holdings *holdings, const struct chunk *chunk)
{
	if (chunk_is_host(chunk))
		return chunk->fd->is_programs ? WIRE_HOST_FILE : 0;
	return is_aliased(holdings, chunk);
}

/* Executors know no handles: they map a chunk, or a file of host memory. The check has found the
 * handle. */
static CUresult resolve_handle(struct request *request)
{
	const struct wire_memory wish = request->message.memory;
	const struct holdings *holdings = &request->session->holdings;
	struct chunk *chunk = holdings_find_memory(holdings, wish.handle)->chunk;

	/* The daemon has died since, and the memory's descriptor with it. */
	if (!chunk)
		return CUDA_ERROR_INVALID_HANDLE;
	request->message.type = chunk_is_host(chunk) ? WIRE_MAP_HOST : WIRE_MAP_MEMORY;
	request->message.range = (struct wire_range){.address = wish.address,
		.bytes = wish.bytes,
		.flags = mapping_flags(holdings, chunk),
		.offset = chunk->offset};
	if (!request->chunk)
		request->chunk = chunk_ref(chunk);
	return CUDA_SUCCESS;
}

const struct resource resource_memory_create = {
	.check = check_create, .fill = fill_handle, .has = has_handle};
const struct resource resource_memory_import = {
	.check = check_import, .fill = fill_handle, .has = has_handle};
const struct resource resource_memory_release = {.check = check_release};
const struct resource resource_memory_map_handle = {.check = check_map_handle, .prepare = resolve_handle};
