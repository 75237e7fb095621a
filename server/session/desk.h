// The operators' desk. control/ stands above the sessions and calls into them; the daemon calls
// control/ through this table, which the start of the daemon sets. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_DESK_H
#define FRMPS_SERVER_SESSION_DESK_H

#include <sys/types.h>

struct connection;
struct daemon;
struct guest;
struct wire_message;

struct desk {
	/** Before any connection, and after the last. */
	void (*open)(struct daemon *daemon);
	void (*close)(struct daemon *daemon);
	/** A connection whose first message is an operator's: taken over. @pid: of the operator's
	 * process */
	void (*receive)(struct daemon *daemon, struct connection *connection, uid_t uid, pid_t pid,
		const struct wire_message *message);
	/** Sends an operator away. */
	void (*dismiss)(struct guest *caller);
};

#endif
