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

static int check_mapping(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	(void)file;
	return check_map(scope, &message->range, true, finding);
}

static int check_unmapping(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	(void)file;
	return check_unmap(scope, &message->range, true, finding);
}

const struct resource resource_memory_map = {
	.check = check_mapping, .fill = range_fill, .again = range_again, .has = range_has};
const struct resource resource_memory_unmap = {.check = check_unmapping};

/*
 * Handles
 */

/* A new handle, for memory that is made or imported. */
static int check_new(
	const struct check_scope *scope, const struct wire_memory *memory, struct check_finding *finding)
{
	if (!memory->handle || holdings_find_memory(scope->holdings, memory->handle))
		return check_broken(finding, "handle of memory is zero or in use");
	return 0;
}

static int check_create(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	const struct wire_memory *memory = &message->memory;
	int r = check_new(scope, memory, finding);

	(void)file;
	if (r)
		return r;
	if (!memory->bytes || memory->bytes % BACKEND_CHUNK_GRANULE)
		return check_broken(finding, "size of memory is zero or not aligned");
	return memory->host ? check_pinned_limit(scope, memory->bytes, finding)
			    : check_memory_limit(scope, memory->bytes, finding);
}

static int check_import(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	(void)file;
	return check_new(scope, &message->memory, finding);
}

static int check_release(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	const struct holding *entry = holdings_find_memory(scope->holdings, message->memory.handle);

	(void)file;
	if (!entry)
		return check_answer(finding, CUDA_ERROR_INVALID_HANDLE);
	if (holdings_find_mapping(scope->holdings, entry->chunk) &&
		holdings_is_only_memory(scope->holdings, entry))
		return check_broken(finding, "memory that is mapped was released");
	return 0;
}

static int check_map_handle(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	const struct wire_memory *memory = &message->memory;
	const struct holding *entry = holdings_find_memory(scope->holdings, memory->handle);
	const struct wire_range range = {.address = memory->address, .bytes = memory->bytes};
	bool is_host = entry && chunk_is_host(entry->chunk);

	(void)file;
	/* An earlier life of the daemon may have left a handle without its memory. */
	if (!entry || !entry->chunk)
		return check_answer(finding, CUDA_ERROR_INVALID_HANDLE);
	if (range.bytes != entry->range.bytes || range.address % BACKEND_CHUNK_GRANULE)
		return check_broken(finding, "memory is mapped partly or not aligned");
	if (!check_inside_part(scope, &range, !is_host) && !check_inside_windows(scope, &range, !is_host))
		return is_host ? check_answer(finding, CUDA_ERROR_NOT_SUPPORTED)
			       : check_broken(finding, "range lies outside the session's windows");
	if (holdings_overlaps(scope->holdings, &range))
		return check_broken(finding, "range overlaps one that is mapped");
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
