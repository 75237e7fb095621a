// See answer.h.

#include "server/session/answer.h"

#include <stdint.h>

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "server/session/request.h"

const char *answer_flaw(
	const struct request *request, const struct wire_reply *reply, const struct packet *packet)
{
	enum wire_type type = request->message.type;
	const struct wire_u64s *values = &reply->values;

	if (packet->fd_count)
		return "answered with a descriptor";
	if (reply->code || !values->count)
		return NULL;
	switch (type) {
	case WIRE_RESERVE_WINDOW:
		return values->count >= 2 && values->at[0] == request->window &&
				       values->at[1] == request->message.window.bytes
			       ? NULL
			       : "answered with a window that is not its to give";
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
	case WIRE_LOAD_MODULE:
		return values->count <= 6 || values->at[6] <= request->message.load_module.room
			       ? NULL
			       : "has unpacked more than it may";
	default:
		return NULL;
	}
}
