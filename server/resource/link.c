// Links: inputs and the result of the device linker, which the session's compiler has
// (daemon/compiling.h).

#include "server/resource/resource.h"

#include <string.h>

#include "server/resource/check.h"

static int check_add(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	const struct wire_link *link = &message->link;
	int r = check_options(&link->options, finding);

	(void)scope;
	if (!r)
		r = check_options(&link->own, finding);
	if (r)
		return r;
	if (strlen(link->name) > CHECK_NAME_MAX || link->bytes > CHECK_LINK_BYTES)
		return check_answer(finding, CUDA_ERROR_INVALID_VALUE);
	if (link->position >= CHECK_LINK_INPUTS)
		return check_answer(finding, CUDA_ERROR_OUT_OF_MEMORY);
	return check_image(link->bytes, file, finding);
}

static int check_complete(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *finding)
{
	(void)scope;
	(void)file;
	return check_options(&message->link.options, finding);
}

const struct resource resource_link_add = {.check = check_add};
const struct resource resource_link_complete = {.check = check_complete};
