// Lookup in messages.def. See message.h.

#include "server/session/message.h"

#include <stddef.h>

static const struct message_row rows[WIRE_TYPES] = {
#define MESSAGE(type, senders, route, keep) [WIRE_##type] = {(senders), (route), (keep)},
#include "server/session/messages.def"
#undef MESSAGE
};

const struct message_row *message_row(enum wire_type type)
{
	return &rows[(unsigned)type < WIRE_TYPES ? type : WIRE_NONE];
}

bool message_is_kept(enum wire_type type)
{
	enum message_keep keep = message_row(type)->keep;

	return keep == KEEP_IT || keep == KEEP_FD;
}

bool message_allowed(enum wire_type type, enum message_sender sender)
{
	return message_row(type)->senders & sender;
}
