// Pinned memory that a program gave up, or that ended with it, and that an executor could not unpin
// yet: the driver would have stopped everybody (executor/burial.c). The daemon counts it, and gives
// the window of a session that ended to nobody before it is over. The same for what is left of a
// session in a domain that it has left. Daemon, loop thread only.
//
// One linger per executor and thing. It ends with the executor's last answer, or with the executor.

#ifndef FRMPS_SERVER_SESSION_LINGER_H
#define FRMPS_SERVER_SESSION_LINGER_H

#include <stdint.h>

#include "protocol/wire.h"

struct daemon;
struct domain;
struct kept_linger;
struct linger;
struct record;
struct session;
struct worker;

/**
 * An executor has answered CloseSession or UnmapHost with bytes that stay pinned. Asks once more,
 * which is answered when they are not; a CloseSession holds the session's window until then.
 * @message: the request that was answered
 */
void linger_begin(
	struct session *session, struct worker *worker, const struct wire_message *message, uint64_t bytes);

/**
 * A session has moved to another domain, and this executor of its former one has let it go: what is
 * left of it there is closed, and all its windows are held until that is over.
 */
void linger_leave(struct session *session, struct worker *worker);

/** Makes a linger of an earlier life of the daemon again. Return: to be asked for; NULL:
 * the record is none */
struct linger *linger_adopt(struct domain *domain, struct worker *worker, const struct kept_linger *kept,
	const struct record *record);
/** Asks, as worker->next_request. */
void linger_ask(struct linger *linger);

/** Lists the processes of executors that a session has left and that have not closed it: its memory
 * and its sinks are mapped there. Return: how many, `room` at most */
uint32_t linger_list(const struct session *session, uint32_t *pids, uint32_t room);

/** Whether pinned memory that a session gave back lingers at some of these addresses, in the active
 * executor. The session's request is advanced when that is over. */
bool linger_touches(const struct session *session, uint64_t address, uint64_t bytes);

/** Bytes that linger in the domain's active executor. */
uint64_t linger_bytes(const struct domain *domain);

#endif
