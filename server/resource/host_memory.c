// Pinned memory at addresses of the window: mapped ranges, also of shared events.

#include "server/resource/resource.h"

#include <sys/stat.h>

#include "server/resource/check.h"
#include "server/resource/range.h"
#include "server/session/holdings.h"
#include "server/session/request.h"

/* True if a file that a program has chosen has all bytes of a mapping, in whole pages, at the
 * moment: the program may make it shorter at any time (executor/hollow.h). */
static bool holds(int file, const struct wire_range *range)
{
	struct stat status;
	uint64_t end;

	return !__builtin_add_overflow(range->offset, range->bytes, &end) && fstat(file, &status) == 0 &&
	       status.st_size > 0 &&
	       end <= ((uint64_t)status.st_size + CHECK_PAGE - 1) / CHECK_PAGE * CHECK_PAGE;
}

/* A file that the daemon has taken for the program (session/taking.h). */
static int check_file(struct check *check, const struct wire_range *range)
{
	if (range->flags || range->offset % CHECK_PAGE)
		return check_broken(check, "a mapping of a file has flags or is not aligned");
	if (check->file < 0)
		return check_answer(check, CUDA_ERROR_ILLEGAL_STATE);
	return holds(check->file, range) ? 0 : check_answer(check, CUDA_ERROR_INVALID_VALUE);
}

static int check_mapping(struct check *check, const struct wire_message *message)
{
	const struct wire_range *range = &message->range;
	int r = check_map(check, range, false);

	if (!r && range->file)
		return check_file(check, range);
	return !r && range->offset ? check_broken(check, "a mapping has an offset and no file") : r;
}

static int check_import(struct check *check, const struct wire_message *message)
{
	const struct wire_range range = {.address = message->import.address,
		.bytes = message->import.bytes,
		.flags = WIRE_HOST_EVENTS};

	return check_map(check, &range, false);
}

static int check_unmapping(struct check *check, const struct wire_message *message)
{
	return check_unmap(check, &message->range, false);
}

static const char *unmapping_flaw(const struct request *request, const struct wire_u64s *values)
{
	return values->at[0] <= request->message.range.bytes ? NULL : "has more pinned than there was";
}

const struct resource resource_host_map = {
	.check = check_mapping, .fill = range_fill, .again = range_again, .has = range_has};
/* From the check on this is a mapping (daemon/requests.c). */
const struct resource resource_host_import = {.check = check_import};
const struct resource resource_host_unmap = {.check = check_unmapping, .flaw = unmapping_flaw};
