// The rows of messages.def as data. Pure; any thread.

#ifndef FRMPS_SERVER_SESSION_MESSAGE_H
#define FRMPS_SERVER_SESSION_MESSAGE_H

#include <stdbool.h>

#include "protocol/wire.h"

enum message_sender {
	FROM_CLIENT = 1,
	FROM_STRANGER = 2,
	FROM_OPERATOR = 4,
	FROM_EXECUTOR = 8,
	FROM_KEEPER = 16,
	FROM_DAEMON = 32,
	FROM_COMPILER = 64,
};
enum message_route { ROUTE_NONE, ROUTE_ACTIVE, ROUTE_CHUNK, ROUTE_KEEPER, ROUTE_DAEMON, ROUTE_COMPILER };
enum message_keep { KEEP_NOTHING, KEEP_IT, KEEP_FD, KEEP_DROP };

struct message_row {
	unsigned senders;
	enum message_route route;
	enum message_keep keep;
};

/** The row of a message type; for an unknown type a row that nobody may send. */
const struct message_row *message_row(enum wire_type type);
/** True if a success of such a request changes the holdings of the session. */
bool message_is_kept(enum wire_type type);
/** True if this sender may send this message. */
bool message_allowed(enum wire_type type, enum message_sender sender);

#endif
