// Links: inputs and the result of the device linker, which the session's compiler has
// (daemon/compiling.h).

#include "server/resource/resource.h"

#include <string.h>

#include "server/resource/check.h"

static int check_add(struct check *check, const struct wire_message *message)
{
	const struct wire_link *link = &message->link;
	int r = check_options(check, &link->options);

	if (!r)
		r = check_options(check, &link->own);
	if (r)
		return r;
	if (strlen(link->name) > CHECK_NAME_MAX || link->bytes > CHECK_LINK_BYTES)
		return check_answer(check, CUDA_ERROR_INVALID_VALUE);
	if (link->position >= CHECK_LINK_INPUTS)
		return check_answer(check, CUDA_ERROR_OUT_OF_MEMORY);
	return check_image(check, link->bytes);
}

static int check_complete(struct check *check, const struct wire_message *message)
{
	return check_options(check, &message->link.options);
}

const struct resource resource_link_add = {.check = check_add};
const struct resource resource_link_complete = {.check = check_complete};
