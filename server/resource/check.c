// See check.h.

#include "server/resource/check.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "server/backend/backend.h"
#include "server/session/holdings.h"
#include "shm/layout.h"

int check_broken(struct check_finding *finding, const char *reason)
{
	finding->reason = reason;
	return CHECK_E_BROKEN;
}

int check_answer(struct check_finding *finding, CUresult code)
{
	finding->code = code;
	return CHECK_E_ANSWER;
}

bool check_inside(const struct wire_range *range, uint64_t base, uint64_t bytes)
{
	return range->address >= base && range->bytes <= bytes &&
	       range->address - base <= bytes - range->bytes;
}

bool check_inside_part(const struct check_scope *scope, const struct wire_range *range, bool device)
{
	return device ? check_inside(range, scope->window_base, scope->device_bytes)
		      : check_inside(range, scope->window_base + scope->device_bytes, scope->host_bytes);
}

bool check_inside_windows(const struct check_scope *scope, const struct wire_range *range, bool device)
{
	const struct holding *entry;

	if (!scope->holdings->windows)
		return false;
	TAILQ_FOREACH (entry, &scope->holdings->entries, link)
		if (entry->type == WIRE_RESERVE_WINDOW && holding_is_host_window(entry) != device &&
			check_inside(range, entry->range.address, entry->range.bytes))
			return true;
	return false;
}

/* Shape of a range, the same for mapping and unmapping. */
static int check_range(const struct check_scope *scope, const struct wire_range *range, bool device,
	struct check_finding *finding)
{
	uint64_t granule = device ? BACKEND_CHUNK_GRANULE : CHECK_PAGE;

	if (!range->bytes || range->bytes % granule || range->address % granule)
		return check_broken(finding, "range is empty or not aligned");
	if (!check_inside_part(scope, range, device))
		return check_broken(finding, "range lies outside the session's window");
	return 0;
}

bool check_is_over(uint64_t limit, uint64_t held, uint64_t more)
{
	return limit && (held > limit || more > limit - held);
}

int check_over(struct check_finding *finding, const char *limit, uint64_t bytes)
{
	finding->limit = limit;
	finding->bytes = bytes;
	return check_answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
}

int check_memory_limit(const struct check_scope *scope, uint64_t bytes, struct check_finding *finding)
{
	return check_is_over(scope->memory_limit, scope->holdings->memory_bytes, bytes)
		       ? check_over(finding, "memory_limit", bytes)
		       : 0;
}

int check_pinned_limit(const struct check_scope *scope, uint64_t bytes, struct check_finding *finding)
{
	return check_is_over(scope->pinned_limit, scope->holdings->host_bytes + scope->kept_bytes, bytes)
		       ? check_over(finding, "pinned_limit", bytes)
		       : 0;
}

int check_map(const struct check_scope *scope, const struct wire_range *range, bool device,
	struct check_finding *finding)
{
	int r = check_range(scope, range, device, finding);

	if (r)
		return r;
	if (range->flags & ~(device ? 0 : WIRE_HOST_EVENTS))
		return check_broken(finding, "flags of a mapping are unknown");
	if (range->flags && range->bytes != SHM_SHARED_PAGE_BYTES)
		return check_broken(finding, "shared events are not a page");
	if (holdings_overlaps(scope->holdings, range))
		return check_broken(finding, "range overlaps one that is mapped");
	return device ? check_memory_limit(scope, range->bytes, finding)
		      : check_pinned_limit(scope, range->bytes, finding);
}

int check_unmap(const struct check_scope *scope, const struct wire_range *range, bool device,
	struct check_finding *finding)
{
	int r = check_inside_windows(scope, range, device) ? 0 : check_range(scope, range, device, finding);

	if (!r && !holdings_find_range(scope->holdings, device ? WIRE_MAP_MEMORY : WIRE_MAP_HOST,
			  range->address, range->bytes))
		return check_broken(finding, "range was not mapped");
	if (!r && device && holdings_backs_array(scope->holdings, range))
		return check_broken(finding, "memory of an array was unmapped");
	return r;
}

int check_options(const struct wire_options *options, struct check_finding *finding)
{
	if (options->count > CHECK_OPTIONS_MAX)
		return check_broken(finding, "too many options");
	for (uint32_t i = 0; i < options->count; i++) {
		uint32_t id = options->at[i].id;

		if (options->at[i].reserved)
			return check_broken(finding, "reserved word of an option is not zero");
		if ((id == CU_JIT_INFO_LOG_BUFFER || id == CU_JIT_ERROR_LOG_BUFFER) &&
			options->at[i].value > CHECK_OPTION_BYTES)
			return check_answer(finding, CUDA_ERROR_INVALID_VALUE);
	}
	return 0;
}

int check_image(uint64_t bytes, int fd, struct check_finding *finding)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	struct stat status;
	int seals;

	if (fd < 0 || fstat(fd, &status) < 0)
		return check_answer(finding, CUDA_ERROR_ILLEGAL_STATE);
	if (bytes > CHECK_IMAGE_MAX)
		return check_answer(finding, CUDA_ERROR_INVALID_IMAGE);
	if (!bytes || (uint64_t)status.st_size != bytes)
		return check_broken(finding, "image has another size than announced");
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & needed) != needed)
		return check_broken(finding, "image is not sealed");
	return 0;
}
