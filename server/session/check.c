// Request checks. See check.h. Each helper fills in the finding and returns its class, so that the
// callers stay flat.

#include "server/session/check.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "protocol/texel.h"
#include "server/backend/backend.h"
#include "server/backend/image.h"
#include "server/session/chunk.h"
#include "server/session/holdings.h"
#include "server/session/message.h"
#include "server/session/window.h"
#include "shm/layout.h"

static int broken(struct check_finding *finding, const char *reason)
{
	finding->reason = reason;
	return CHECK_E_BROKEN;
}

static int answer(struct check_finding *finding, CUresult code)
{
	finding->code = code;
	return CHECK_E_ANSWER;
}

static bool inside(const struct wire_range *range, uint64_t base, uint64_t bytes)
{
	return range->address >= base && range->bytes <= bytes &&
	       range->address - base <= bytes - range->bytes;
}

/* A range inside the device or the host part of the session's window. */
static bool inside_part(const struct check_scope *scope, const struct wire_range *range, bool device)
{
	return device ? inside(range, scope->window_base, scope->device_bytes)
		      : inside(range, scope->window_base + scope->device_bytes, scope->host_bytes);
}

/* Shape of a range, the same for mapping and unmapping. */
static int check_range(const struct check_scope *scope, const struct wire_range *range, bool device,
	struct check_finding *finding)
{
	uint64_t granule = device ? BACKEND_CHUNK_GRANULE : CHECK_PAGE;

	if (!range->bytes || range->bytes % granule || range->address % granule)
		return broken(finding, "range is empty or not aligned");
	if (!inside_part(scope, range, device))
		return broken(finding, "range lies outside the session's window");
	return 0;
}

/* True if `more` would exceed the limit. @limit: 0: none */
static bool is_over(uint64_t limit, uint64_t held, uint64_t more)
{
	return limit && (held > limit || more > limit - held);
}

static int over(struct check_finding *finding, const char *limit, uint64_t bytes)
{
	finding->limit = limit;
	finding->bytes = bytes;
	return answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
}

static int check_memory_limit(const struct check_scope *scope, uint64_t bytes, struct check_finding *finding)
{
	return is_over(scope->memory_limit, scope->holdings->memory_bytes, bytes)
		       ? over(finding, "memory_limit", bytes)
		       : 0;
}

/* Without a configured limit, the size of the window is the limit: memory with a handle needs no
 * mapping, so the window itself does not bound such memory. */
static int check_pinned_limit(const struct check_scope *scope, uint64_t bytes, struct check_finding *finding)
{
	uint64_t limit = scope->pinned_limit ? scope->pinned_limit : scope->host_bytes;

	return is_over(limit, scope->holdings->host_bytes + scope->kept_bytes, bytes)
		       ? over(finding, "pinned_limit", bytes)
		       : 0;
}

static int check_map(const struct check_scope *scope, const struct wire_range *range, bool device,
	struct check_finding *finding)
{
	int r = check_range(scope, range, device, finding);

	if (r)
		return r;
	if (range->flags & ~(device ? 0 : WIRE_HOST_EVENTS))
		return broken(finding, "flags of a mapping are unknown");
	if (range->flags && range->bytes != SHM_SHARED_PAGE_BYTES)
		return broken(finding, "shared events are not a page");
	if (holdings_overlaps(scope->holdings, range))
		return broken(finding, "range overlaps one that is mapped");
	return device ? check_memory_limit(scope, range->bytes, finding)
		      : check_pinned_limit(scope, range->bytes, finding);
}

/* A new handle, for memory that is made or imported. */
static int check_new_memory(
	const struct check_scope *scope, const struct wire_memory *memory, struct check_finding *finding)
{
	if (!memory->handle || holdings_find_memory(scope->holdings, memory->handle))
		return broken(finding, "handle of memory is zero or in use");
	return 0;
}

static int check_create(
	const struct check_scope *scope, const struct wire_memory *memory, struct check_finding *finding)
{
	int r = check_new_memory(scope, memory, finding);

	if (r)
		return r;
	if (!memory->bytes || memory->bytes % BACKEND_CHUNK_GRANULE)
		return broken(finding, "size of memory is zero or not aligned");
	return memory->host ? check_pinned_limit(scope, memory->bytes, finding)
			    : check_memory_limit(scope, memory->bytes, finding);
}

static int check_release(
	const struct check_scope *scope, const struct wire_memory *memory, struct check_finding *finding)
{
	const struct holding *entry = holdings_find_memory(scope->holdings, memory->handle);

	if (!entry)
		return answer(finding, CUDA_ERROR_INVALID_HANDLE);
	if (holdings_find_mapping(scope->holdings, entry->chunk) &&
		holdings_is_only_memory(scope->holdings, entry))
		return broken(finding, "memory that is mapped was released");
	return 0;
}

/* True for a range inside a further window of the session. */
static bool inside_windows(const struct check_scope *scope, const struct wire_range *range)
{
	const struct holding *entry;

	if (!scope->holdings->windows)
		return false;
	TAILQ_FOREACH (entry, &scope->holdings->entries, link)
		if (entry->type == WIRE_RESERVE_WINDOW &&
			inside(range, entry->range.address, entry->range.bytes))
			return true;
	return false;
}

static int check_unmap(const struct check_scope *scope, const struct wire_range *range, bool device,
	struct check_finding *finding)
{
	int r = device && inside_windows(scope, range) ? 0 : check_range(scope, range, device, finding);

	if (!r && !holdings_find_range(scope->holdings, device ? WIRE_MAP_MEMORY : WIRE_MAP_HOST,
			  range->address, range->bytes))
		return broken(finding, "range was not mapped");
	if (!r && device && holdings_backs_array(scope->holdings, range))
		return broken(finding, "memory of an array was unmapped");
	return r;
}

static int check_map_handle(
	const struct check_scope *scope, const struct wire_memory *memory, struct check_finding *finding)
{
	const struct holding *entry = holdings_find_memory(scope->holdings, memory->handle);
	const struct wire_range range = {memory->address, memory->bytes, 0};
	bool is_host = entry && chunk_is_host(entry->chunk);

	/* An earlier life of the daemon may have left a handle without its memory. */
	if (!entry || !entry->chunk)
		return answer(finding, CUDA_ERROR_INVALID_HANDLE);
	if (range.bytes != entry->range.bytes || range.address % BACKEND_CHUNK_GRANULE)
		return broken(finding, "memory is mapped partly or not aligned");
	if (!inside_part(scope, &range, !is_host) && (is_host || !inside_windows(scope, &range)))
		return is_host ? answer(finding, CUDA_ERROR_NOT_SUPPORTED)
			       : broken(finding, "range lies outside the session's windows");
	if (holdings_overlaps(scope->holdings, &range))
		return broken(finding, "range overlaps one that is mapped");
	return 0;
}

static int check_reserve(
	const struct check_scope *scope, const struct wire_window *window, struct check_finding *finding)
{
	if (!window->bytes || window->bytes % WINDOW_GRAIN || window->address % WINDOW_GRAIN ||
		window->alignment & (window->alignment - 1))
		return broken(finding, "window is empty or not aligned");
	return scope->holdings->windows < CHECK_WINDOWS_MAX ? 0 : answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
}

static int check_release_window(
	const struct check_scope *scope, const struct wire_window *window, struct check_finding *finding)
{
	const struct wire_range range = {window->address, window->bytes, 0};

	if (!holdings_find_range(scope->holdings, WIRE_RESERVE_WINDOW, range.address, range.bytes))
		return broken(finding, "window is none of the session's");
	if (holdings_overlaps(scope->holdings, &range))
		return broken(finding, "window with memory was released");
	return 0;
}

static int check_tensor_map(const struct wire_tensor_map *map, struct check_finding *finding)
{
	bool is_encoded = map->kind == 2;

	if (map->kind > 2 || is_encoded != (map->map.count > 0))
		return broken(finding, "kind of tensor map is unknown or does not fit");
	if (is_encoded)
		return 0;
	if (!map->rank || map->rank > WIRE_TENSOR_RANK_MAX || map->dims.count != map->rank ||
		map->strides.count + 1 != map->rank || map->element_strides.count != map->rank)
		return broken(finding, "tensor map has a wrong rank");
	if (map->kind == 0 && map->box.count != map->rank)
		return broken(finding, "box of a tensor map has a wrong rank");
	if (map->kind == 1 &&
		(map->rank < 3 || map->lower.count + 2 != map->rank || map->upper.count + 2 != map->rank))
		return broken(finding, "corners of a tensor map have a wrong rank");
	return 0;
}

static bool is_id(uint32_t id)
{
	return id > 0 && id < HOLDINGS_IDS;
}

static int check_options(const struct wire_options *options, struct check_finding *finding)
{
	if (options->count > CHECK_OPTIONS_MAX)
		return broken(finding, "too many options");
	for (uint32_t i = 0; i < options->count; i++) {
		uint32_t id = options->at[i].id;

		if (options->at[i].reserved)
			return broken(finding, "reserved word of an option is not zero");
		if ((id == CU_JIT_INFO_LOG_BUFFER || id == CU_JIT_ERROR_LOG_BUFFER) &&
			options->at[i].value > CHECK_OPTION_BYTES)
			return answer(finding, CUDA_ERROR_INVALID_VALUE);
	}
	return 0;
}

/* The image must not change while the executor reads: the file is sealed against all changes. No
 * check here waits for a program that writes to the file without end. */
static int check_image(uint64_t bytes, int fd, struct check_finding *finding)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	struct stat status;
	int seals;

	if (fd < 0 || fstat(fd, &status) < 0)
		return answer(finding, CUDA_ERROR_ILLEGAL_STATE);
	if (bytes > CHECK_IMAGE_MAX)
		return answer(finding, CUDA_ERROR_INVALID_IMAGE);
	if (!bytes || (uint64_t)status.st_size != bytes)
		return broken(finding, "image has another size than announced");
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & needed) != needed)
		return broken(finding, "image is not sealed");
	return 0;
}

/* True if the first bytes are those of a text, which is for a compiler. */
static bool is_text(int fd)
{
	uint8_t start[4];

	return pread(fd, start, sizeof(start), 0) == (ssize_t)sizeof(start) &&
	       image_check(start, sizeof(start)) == IMAGE_TEXT;
}

static int check_load(const struct check_scope *scope, const struct wire_load_module *load, int file,
	struct check_finding *finding)
{
	int r;

	if (!is_id(load->module) || holdings_has_module(scope->holdings, load->module))
		return broken(finding, "id of a module is out of range or in use");
	if (load->kind > 1)
		return broken(finding, "kind of module is unknown");
	if (load->is_filled || load->code)
		return broken(finding, "module is said to be loaded already");
	/* Nobody would count the variables as the program's memory. */
	if (load->variables == WIRE_VARIABLES_OF_DRIVER)
		return answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
	r = check_options(&load->options, finding);
	if (!r)
		r = check_image(load->bytes, file, finding);
	/* A file without pages costs the program nothing, but each copy of the file costs its
	 * nominal size. */
	if (!r && load->bytes > CHECK_LINK_BYTES && is_text(file))
		return answer(finding, CUDA_ERROR_INVALID_IMAGE);
	if (!r && is_over(scope->image_limit, scope->holdings->image_bytes, load->bytes))
		return over(finding, "image_limit", load->bytes);
	return r;
}

static int check_link(const struct wire_link *link, int file, struct check_finding *finding)
{
	int r = check_options(&link->options, finding);

	if (!r)
		r = check_options(&link->own, finding);
	if (r)
		return r;
	if (strlen(link->name) > CHECK_NAME_MAX || link->bytes > CHECK_LINK_BYTES)
		return answer(finding, CUDA_ERROR_INVALID_VALUE);
	if (link->position >= CHECK_LINK_INPUTS)
		return answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
	return check_image(link->bytes, file, finding);
}

static int check_graph(const struct check_scope *scope, const struct wire_graph *graph, int file,
	struct check_finding *finding)
{
	if (!graph->graph || graph->graph >= FRMPS_GRAPH_IDS ||
		holdings_has_graph(scope->holdings, graph->graph))
		return broken(finding, "id of a graph is out of range or in use");
	if (graph->bytes > FRMPS_GRAPH_BYTES_MAX)
		return answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
	return check_image(graph->bytes, file, finding);
}

static int check_array(
	const struct check_scope *scope, const struct wire_array *array, struct check_finding *finding)
{
	struct texel_level level;

	if (!array->array || array->array >= FRMPS_ARRAY_IDS ||
		holdings_has_array(scope->holdings, array->array))
		return broken(finding, "id of an array is out of range or in use");
	if (array->flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return answer(finding, CUDA_ERROR_NOT_SUPPORTED);
	if (array->levels > FRMPS_ARRAY_LEVELS || !texel_level(array, 0, &level))
		return answer(finding, CUDA_ERROR_INVALID_VALUE);
	return 0;
}

/* The range must be a part of one mapping. */
static int check_back(
	const struct check_scope *scope, const struct wire_back_array *back, struct check_finding *finding)
{
	const struct holding *entry = holdings_find_address(scope->holdings, back->address);
	const struct wire_range range = {back->address, back->bytes, 0};

	if (!holdings_has_array(scope->holdings, back->array) ||
		holdings_has_backed(scope->holdings, back->array))
		return broken(finding, "there is no such array, or it has memory");
	if (!entry || !back->bytes || !inside(&range, entry->range.address, entry->range.bytes))
		return broken(finding, "memory of an array is not a part of a mapped range");
	return 0;
}

static int check_object(
	const struct check_scope *scope, const struct wire_object *object, struct check_finding *finding)
{
	if (!object->object || object->object >= FRMPS_OBJECT_IDS ||
		holdings_has_object(scope->holdings, object->object))
		return broken(finding, "id of an object is out of range or in use");
	if (object->kind > 1 || object->resource > CU_RESOURCE_TYPE_PITCH2D || object->value)
		return broken(finding, "kind of object or resource is unknown, or its handle is chosen");
	if (object->has_texture != !object->kind ||
		(object->kind && (object->has_view || object->resource != CU_RESOURCE_TYPE_ARRAY)))
		return broken(finding, "description of an object does not fit its kind");
	if (object->resource <= CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
		!holdings_has_backed(scope->holdings, object->array))
		return answer(finding, CUDA_ERROR_INVALID_HANDLE);
	return 0;
}

static int check_symbol(const struct check_scope *scope, enum wire_type type,
	const struct wire_symbol *symbol, struct check_finding *finding)
{
	size_t length = strlen(symbol->name);
	bool named = type == WIRE_FIND_FUNCTION || type == WIRE_FIND_GLOBAL;

	if (!is_id(symbol->module))
		return broken(finding, "id of a module is out of range");
	if (type == WIRE_FIND_FUNCTION &&
		(!is_id(symbol->function) || holdings_has_function(scope->holdings, symbol->function)))
		return broken(finding, "id of a function is out of range or in use");
	if (named && length > CHECK_NAME_MAX)
		return answer(finding, CUDA_ERROR_NOT_FOUND);
	if (named && !length)
		return answer(finding, CUDA_ERROR_INVALID_VALUE);
	if (!holdings_has_module(scope->holdings, symbol->module))
		return answer(finding, CUDA_ERROR_INVALID_HANDLE);
	return 0;
}

static int check_function(const struct check_scope *scope, uint32_t function, struct check_finding *finding)
{
	if (!is_id(function))
		return broken(finding, "id of a function is out of range");
	if (!holdings_has_function(scope->holdings, function))
		return answer(finding, CUDA_ERROR_INVALID_HANDLE);
	return 0;
}

static int check_occupancy(const struct check_scope *scope, const struct wire_occupancy *occupancy,
	struct check_finding *finding)
{
	if (occupancy->query > 3)
		return broken(finding, "query of occupancy is unknown");
	if ((occupancy->grid.count && occupancy->grid.count != 3) ||
		(occupancy->block.count && occupancy->block.count != 3))
		return broken(finding, "dimensions are not three");
	if (occupancy->attributes.count % sizeof(struct frmps_launch_attribute) ||
		occupancy->attributes.count > FRMPS_ATTRIBUTE_MAX * sizeof(struct frmps_launch_attribute))
		return broken(finding, "launch attributes have a wrong size");
	return check_function(scope, occupancy->function, finding);
}

/* Those that kernels fail without. */
static bool is_needed(uint32_t limit)
{
	return limit == CU_LIMIT_STACK_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE ||
	       limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT;
}

static int check_limit(
	const struct check_scope *scope, const struct wire_limit *wish, struct check_finding *finding)
{
	uint64_t growth = holdings_limit_growth(scope->holdings, wish);

	if (!is_needed(wish->limit))
		return broken(finding, "a limit that is none of a context's");
	if (wish->value > INT64_MAX)
		return answer(finding, CUDA_ERROR_INVALID_VALUE);
	/* While requested, the growth counts as held: an impossible growth must not cause refusals
	 * for others. */
	if (growth > scope->holdings->device->total_bytes)
		return answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
	return check_memory_limit(scope, growth, finding);
}

static int check_by_type(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	switch (message->type) {
	case WIRE_MAP_MEMORY:
	case WIRE_MAP_HOST:
		return check_map(scope, &message->range, message->type == WIRE_MAP_MEMORY, finding);
	case WIRE_IMPORT_HOST:
		return check_map(scope,
			&(struct wire_range){
				message->import.address, message->import.bytes, WIRE_HOST_EVENTS},
			false, finding);
	case WIRE_UNMAP_MEMORY:
	case WIRE_UNMAP_HOST:
		return check_unmap(scope, &message->range, message->type == WIRE_UNMAP_MEMORY, finding);
	case WIRE_LOAD_MODULE:
		return check_load(scope, &message->load_module, file, finding);
	case WIRE_UNLOAD_MODULE:
	case WIRE_FIND_FUNCTION:
	case WIRE_FIND_GLOBAL:
	case WIRE_LIST_FUNCTIONS:
		return check_symbol(scope, message->type, &message->symbol, finding);
	case WIRE_SET_FUNCTION:
		return check_function(scope, message->set_function.function, finding);
	case WIRE_QUERY_OCCUPANCY:
		return check_occupancy(scope, &message->occupancy, finding);
	case WIRE_QUERY_ELAPSED: /* an older library's */
		return answer(finding, CUDA_ERROR_NOT_SUPPORTED);
	case WIRE_SET_LIMIT:
		return check_limit(scope, &message->limit, finding);
	case WIRE_QUERY_MEMORY:
	case WIRE_LINK_DROP:
	case WIRE_MAKE_FILE:
		return 0;
	case WIRE_LINK_ADD:
		return check_link(&message->link, file, finding);
	case WIRE_LINK_COMPLETE:
		return check_options(&message->link.options, finding);
	case WIRE_CREATE_MEMORY:
		return check_create(scope, &message->memory, finding);
	case WIRE_IMPORT_MEMORY:
		return check_new_memory(scope, &message->memory, finding);
	case WIRE_RELEASE_MEMORY:
		return check_release(scope, &message->memory, finding);
	case WIRE_MAP_HANDLE:
		return check_map_handle(scope, &message->memory, finding);
	case WIRE_EXPORT_MEMORY:
		return 0;
	case WIRE_RESERVE_WINDOW:
		return check_reserve(scope, &message->window, finding);
	case WIRE_RELEASE_WINDOW:
		return check_release_window(scope, &message->window, finding);
	case WIRE_ENCODE_TENSOR_MAP:
		return check_tensor_map(&message->tensor_map, finding);
	case WIRE_MAKE_GRAPH:
		return check_graph(scope, &message->graph, file, finding);
	case WIRE_DROP_GRAPH:
		return holdings_has_graph(scope->holdings, message->graph.graph)
			       ? 0
			       : answer(finding, CUDA_ERROR_INVALID_HANDLE);
	case WIRE_MAKE_ARRAY:
		return check_array(scope, &message->array, finding);
	case WIRE_BACK_ARRAY:
		return check_back(scope, &message->back_array, finding);
	case WIRE_DROP_ARRAY:
		return holdings_has_array(scope->holdings, message->array.array)
			       ? 0
			       : answer(finding, CUDA_ERROR_INVALID_HANDLE);
	case WIRE_MAKE_OBJECT:
		return check_object(scope, &message->object, finding);
	case WIRE_DROP_OBJECT:
		return holdings_has_object(scope->holdings, message->object.object)
			       ? 0
			       : answer(finding, CUDA_ERROR_INVALID_HANDLE);
	default:
		return broken(finding, "not a request");
	}
}

static bool is_full(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings->count >= HOLDINGS_ENTRIES_MAX ||
	       holdings->kept_bytes + holding_cost(message) > HOLDINGS_KEPT_MAX;
}

int check_request(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	int r;

	*finding = (struct check_finding){0};
	if (!message->id)
		return broken(finding, "request without a number");
	r = check_by_type(scope, message, file, finding);
	if (!r && message_is_kept(message->type) && is_full(scope->holdings, message))
		return answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
	return r;
}
