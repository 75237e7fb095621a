// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Request checks. See check.h. Each helper fills in the finding and returns its class, so that the callers
// stay flat.

#include "server/session/check.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "server/backend/backend.h"
#include "server/session/holdings.h"
#include "server/session/message.h"
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

/* Shape of a range, the same for mapping and unmapping. */
static int check_range(const struct check_scope *scope, const struct wire_range *range, bool device,
	struct check_finding *finding)
{
	uint64_t granule = device ? BACKEND_CHUNK_GRANULE : CHECK_PAGE;
	uint64_t base = scope->window_base + (device ? 0 : scope->device_bytes);
	uint64_t bytes = device ? scope->device_bytes : scope->host_bytes;

	if (!range->bytes || range->bytes % granule || range->address % granule)
		return broken(finding, "range is empty or not aligned");
	if (!inside(range, base, bytes))
		return broken(finding, "range lies outside the session's window");
	return 0;
}

static int check_map(const struct check_scope *scope, const struct wire_range *range, bool device,
	struct check_finding *finding)
{
	int r = check_range(scope, range, device, finding);

	if (r)
		return r;
	if (holdings_overlaps(scope->holdings, range))
		return broken(finding, "range overlaps one that is mapped");
	if (device && scope->memory_limit &&
		(scope->holdings->memory_bytes > scope->memory_limit ||
			range->bytes > scope->memory_limit - scope->holdings->memory_bytes))
		return answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
	return 0;
}

static int check_unmap(const struct check_scope *scope, const struct wire_range *range, bool device,
	struct check_finding *finding)
{
	int r = check_range(scope, range, device, finding);

	if (!r && !holdings_find_range(scope->holdings, device ? WIRE_MAP_MEMORY : WIRE_MAP_HOST,
			  range->address, range->bytes))
		return broken(finding, "range was not mapped");
	return r;
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

/* The image must not change under the executor's feet: a memfd that is sealed against everything. */
static int check_image(uint64_t bytes, int fd, struct check_finding *finding)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	struct stat status;
	int seals;

	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
		return broken(finding, "image is not a regular file");
	if (bytes > CHECK_IMAGE_MAX)
		return answer(finding, CUDA_ERROR_INVALID_IMAGE);
	if (!bytes || (uint64_t)status.st_size != bytes)
		return broken(finding, "image has another size than announced");
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & needed) != needed)
		return broken(finding, "image is not sealed");
	return 0;
}

static int check_load(const struct check_scope *scope, const struct wire_load_module *load,
	const struct packet *packet, struct check_finding *finding)
{
	int r;

	if (!is_id(load->module) || holdings_has_module(scope->holdings, load->module))
		return broken(finding, "id of a module is out of range or in use");
	if (load->kind > 1)
		return broken(finding, "kind of module is unknown");
	r = check_options(&load->options, finding);
	return r ? r : check_image(load->bytes, packet->fds[0], finding);
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

static int check_by_type(const struct check_scope *scope, const struct wire_message *message,
	const struct packet *packet, struct check_finding *finding)
{
	switch (message->type) {
	case WIRE_MAP_MEMORY:
	case WIRE_MAP_HOST:
		return check_map(scope, &message->range, message->type == WIRE_MAP_MEMORY, finding);
	case WIRE_UNMAP_MEMORY:
	case WIRE_UNMAP_HOST:
		return check_unmap(scope, &message->range, message->type == WIRE_UNMAP_MEMORY, finding);
	case WIRE_LOAD_MODULE:
		return check_load(scope, &message->load_module, packet, finding);
	case WIRE_UNLOAD_MODULE:
	case WIRE_FIND_FUNCTION:
	case WIRE_FIND_GLOBAL:
	case WIRE_LIST_FUNCTIONS:
		return check_symbol(scope, message->type, &message->symbol, finding);
	case WIRE_SET_FUNCTION:
		return check_function(scope, message->set_function.function, finding);
	case WIRE_QUERY_OCCUPANCY:
		return check_occupancy(scope, &message->occupancy, finding);
	case WIRE_QUERY_ELAPSED:
		if (message->elapsed.start_event >= SHM_EVENTS || message->elapsed.end_event >= SHM_EVENTS)
			return broken(finding, "slot of an event is out of range");
		return 0;
	case WIRE_QUERY_MEMORY:
		return 0;
	default:
		return broken(finding, "not a request");
	}
}

int check_request(const struct check_scope *scope, const struct wire_message *message,
	const struct packet *packet, struct check_finding *finding)
{
	*finding = (struct check_finding){0};
	if (!message->id)
		return broken(finding, "request without a number");
	if (message_row(message->type)->keep == KEEP_IT && scope->holdings->count >= HOLDINGS_ENTRIES_MAX)
		return answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
	return check_by_type(scope, message, packet, finding);
}
