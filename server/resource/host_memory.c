// Pinned memory at addresses of the window: mapped ranges, also of shared events.

#include "server/resource/resource.h"

#include "server/resource/check.h"
#include "server/resource/range.h"
#include "server/session/holdings.h"
#include "server/session/request.h"

static int check_mapping(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	(void)file;
	return check_map(scope, &message->range, false, finding);
}

static int check_import(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	const struct wire_range range = {message->import.address, message->import.bytes, WIRE_HOST_EVENTS};

	(void)file;
	return check_map(scope, &range, false, finding);
}

static int check_unmapping(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	(void)file;
	return check_unmap(scope, &message->range, false, finding);
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
