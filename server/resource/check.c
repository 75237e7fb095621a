// See check.h.

#include "server/resource/check.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "server/backend/backend.h"
#include "server/session/holdings.h"
#include "shm/layout.h"

int check_broken(struct check *check, const char *reason)
{
	check->finding.reason = reason;
	return CHECK_E_BROKEN;
}

int check_answer(struct check *check, CUresult code)
{
	check->finding.code = code;
	return CHECK_E_ANSWER;
}

bool check_inside(const struct wire_range *range, uint64_t base, uint64_t bytes)
{
	return range->address >= base && range->bytes <= bytes &&
	       range->address - base <= bytes - range->bytes;
}

bool check_inside_part(struct check *check, const struct wire_range *range, bool device)
{
	return device ? check_inside(range, check->window_base, check->device_bytes)
		      : check_inside(range, check->window_base + check->device_bytes, check->host_bytes);
}

bool check_inside_windows(struct check *check, const struct wire_range *range, bool device)
{
	const struct holding *entry;

	if (!check->holdings->windows)
		return false;
	TAILQ_FOREACH (entry, &check->holdings->entries, link)
		if (entry->type == WIRE_RESERVE_WINDOW && holding_is_host_window(entry) != device &&
			check_inside(range, entry->range.address, entry->range.bytes))
			return true;
	return false;
}

/* Shape of a range, the same for mapping and unmapping. */
static int check_range(struct check *check, const struct wire_range *range, bool device)
{
	uint64_t granule = device ? BACKEND_CHUNK_GRANULE : CHECK_PAGE;

	if (!range->bytes || range->bytes % granule || range->address % granule)
		return check_broken(check, "range is empty or not aligned");
	if (!check_inside_part(check, range, device))
		return check_broken(check, "range lies outside the session's window");
	return 0;
}

bool check_is_over(uint64_t limit, uint64_t held, uint64_t more)
{
	return limit && (held > limit || more > limit - held);
}

int check_over(struct check *check, const char *limit, uint64_t bytes)
{
	check->finding.limit = limit;
	check->finding.bytes = bytes;
	return check_answer(check, CUDA_ERROR_OUT_OF_MEMORY);
}

int check_memory_limit(struct check *check, uint64_t bytes)
{
	return check_is_over(check->memory_limit, check->holdings->memory_bytes, bytes)
		       ? check_over(check, "memory_limit", bytes)
		       : 0;
}

int check_pinned_limit(struct check *check, uint64_t bytes)
{
	return check_is_over(check->pinned_limit, check->holdings->host_bytes + check->kept_bytes, bytes)
		       ? check_over(check, "pinned_limit", bytes)
		       : 0;
}

int check_map(struct check *check, const struct wire_range *range, bool device)
{
	int r = check_range(check, range, device);

	if (r)
		return r;
	if (range->flags & ~(device ? 0 : WIRE_HOST_EVENTS))
		return check_broken(check, "flags of a mapping are unknown");
	if (range->flags && range->bytes != SHM_SHARED_PAGE_BYTES)
		return check_broken(check, "shared events are not a page");
	if (holdings_overlaps(check->holdings, range))
		return check_broken(check, "range overlaps one that is mapped");
	return device ? check_memory_limit(check, range->bytes) : check_pinned_limit(check, range->bytes);
}

int check_unmap(struct check *check, const struct wire_range *range, bool device)
{
	int r = check_inside_windows(check, range, device) ? 0 : check_range(check, range, device);

	if (!r && !holdings_find_range(check->holdings, device ? WIRE_MAP_MEMORY : WIRE_MAP_HOST,
			  range->address, range->bytes))
		return check_broken(check, "range was not mapped");
	if (!r && device && holdings_backs_array(check->holdings, range))
		return check_broken(check, "memory of an array was unmapped");
	return r;
}

int check_options(struct check *check, const struct wire_options *options)
{
	if (options->count > CHECK_OPTIONS_MAX)
		return check_broken(check, "too many options");
	for (uint32_t i = 0; i < options->count; i++) {
		uint32_t id = options->at[i].id;

		if (options->at[i].reserved)
			return check_broken(check, "reserved word of an option is not zero");
		if ((id == CU_JIT_INFO_LOG_BUFFER || id == CU_JIT_ERROR_LOG_BUFFER) &&
			options->at[i].value > CHECK_OPTION_BYTES)
			return check_answer(check, CUDA_ERROR_INVALID_VALUE);
	}
	return 0;
}

int check_image(struct check *check, uint64_t bytes)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	struct stat status;
	int seals;

	if (check->file < 0 || fstat(check->file, &status) < 0)
		return check_answer(check, CUDA_ERROR_ILLEGAL_STATE);
	if (bytes > CHECK_IMAGE_MAX)
		return check_answer(check, CUDA_ERROR_INVALID_IMAGE);
	if (!bytes || (uint64_t)status.st_size != bytes)
		return check_broken(check, "image has another size than announced");
	seals = fcntl(check->file, F_GET_SEALS);
	if (seals < 0 || (seals & needed) != needed)
		return check_broken(check, "image is not sealed");
	return 0;
}
