// Unpinnings: pinned memory that a program freed, or that ended with the program, and that an
// executor could not unpin yet: the driver would have stopped everybody (executor/deferred.c). The
// daemon counts that memory, and gives the windows of an ended session to nobody while memory is
// pinned there. The same for the remaining state of a session in a domain that it has left.
// Daemon, loop thread only.
//
// One unpinning per executor and resource. An unpinning ends with the executor's last answer, or
// with the executor.

#ifndef FRMPS_SERVER_SESSION_UNPINNING_H
#define FRMPS_SERVER_SESSION_UNPINNING_H

#include <stdint.h>

#include "protocol/wire.h"

struct daemon;
struct domain;
struct kept_unpinning;
struct unpinning;
struct record;
struct session;
struct worker;

/**
 * An executor has answered CloseSession or UnmapHost with bytes that stay pinned. Sends the request
 * once more: the executor answers when the bytes are unpinned. For CloseSession, the session's
 * own window and those for pinned memory stay taken until then.
 * @message: the request that was answered
 */
void unpinning_begin(
	struct session *session, struct worker *worker, const struct wire_message *message, uint64_t bytes);

/**
 * A session has moved to another domain, and this executor of the previous domain has detached it:
 * closes the rest of the session there, and holds all windows of the session until that is done.
 */
void unpinning_leave(struct session *session, struct worker *worker);

/** Makes an unpinning of an earlier life of the daemon again. Return: to be passed to
 * unpinning_ask(); NULL: the record is invalid */
struct unpinning *unpinning_adopt(struct domain *domain, struct worker *worker,
	const struct kept_unpinning *kept, const struct record *record);
/** Asks, as worker->next_request. */
void unpinning_ask(struct unpinning *unpinning);

/** True if pinned memory that a session freed is still pinned at some of these addresses, in the
 * active executor. The end of that advances the session's request. */
bool unpinning_touches(const struct session *session, uint64_t address, uint64_t bytes);

/** True if an executor has not yet closed a part of a session with this number. */
bool unpinning_is_of(const struct daemon *daemon, uint64_t session);

/** Bytes that stay pinned in the domain's active executor. */
uint64_t unpinning_bytes(const struct domain *domain);

#endif
