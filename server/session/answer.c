// See answer.h.

#include "server/session/answer.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "server/session/check.h"
#include "server/session/domain.h"
#include "server/session/request.h"
#include "server/session/session.h"
#include "server/session/window.h"

/* A new daemon may be answered for the windows that an earlier one had taken: those are free in
 * this one, but for its own. */
static bool are_windows(const struct request *request, const struct wire_u64s *values)
{
	const struct window_set *set = &request->session->domain->windows;
	const struct wire_window *wish = &request->message.window;
	uint32_t first, count, own_end = request->window + request->windows;

	if (values->count < 2 || values->at[1] != wish->bytes ||
		!window_run_is_real(values->at[0], wish->bytes))
		return false;
	first = window_at(values->at[0]);
	count = (uint32_t)(wish->bytes / WINDOW_BYTES);
	for (uint32_t i = first; i < first + count; i++)
		if (!(i >= request->window && i < own_end) && !window_run_is_free(set, i, 1))
			return false;
	return true;
}

/* What was compiled comes as a file, and is the image from now on. */
static bool is_code(const struct wire_u64s *values, const struct packet *packet)
{
	uint64_t bytes = values->count > 2 ? values->at[2] : 0;
	struct stat status;

	if (!packet->fd_count)
		return true;
	return packet->fd_count == 1 && bytes && bytes <= CHECK_IMAGE_MAX &&
	       fstat(packet->fds[0], &status) == 0 && S_ISREG(status.st_mode) &&
	       (uint64_t)status.st_size == bytes;
}

const char *answer_flaw(
	const struct request *request, const struct wire_reply *reply, const struct packet *packet)
{
	enum wire_type type = request->message.type;
	const struct wire_u64s *values = &reply->values;

	if (type != WIRE_LOAD_MODULE && packet->fd_count)
		return "answered with a descriptor that nobody has asked for";
	if (type == WIRE_LOAD_MODULE && !is_code(values, packet))
		return "answered with code that is not what it says";
	if (!values->count)
		return NULL;
	switch (type) {
	case WIRE_RESERVE_WINDOW:
		return are_windows(request, values) ? NULL : "answered with windows that are not its to give";
	case WIRE_UNMAP_HOST:
		return values->at[0] <= request->message.range.bytes ? NULL
								     : "has more pinned than there was";
	case WIRE_QUERY_MEMORY:
		return values->count >= 2 && values->at[0] <= values->at[1]
			       ? NULL
			       : "has more memory free than there is";
	case WIRE_FIND_GLOBAL:
		return values->count >= 2 && values->at[0] + values->at[1] >= values->at[0]
			       ? NULL
			       : "answered with a variable that is nowhere";
	default:
		return NULL;
	}
}
