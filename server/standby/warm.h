// Warming of standbys: a new standby gets all holdings, a warm standby every change, at once or a
// little later. So a standby has at every moment a prefix of the active executor's history, without
// short-lived holdings. Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_WARM_H
#define FRMPS_SERVER_STANDBY_WARM_H

#include "protocol/wire.h"

struct chunk;
struct domain;
struct holding;
struct session;
struct worker;

/** The worker has sent Ready: sends all opened sessions; once the worker has executed them, it is
 * WARM. */
void warm_start(struct worker *worker);

/** Sends an executor all holdings of a session. */
void warm_tell(struct worker *worker, struct session *session);

/** A standby has everything; a waiting promotion may use it at once. */
void warm_done(struct domain *domain, struct worker *worker);

/** Tells all standbys of a session that was opened. */
void warm_session(struct session *session);
/** Sends all standbys a new entry of the holdings, now or later. */
void warm_entry(struct session *session, struct holding *entry);
/** The active executor is in trouble: calls off moves, and sends standbys everything now. */
void warm_hurry(struct domain *domain);
/**
 * Removes a resource from all standbys.
 * @message: UNMAP_MEMORY, UNMAP_HOST, UNLOAD_MODULE, DROP_GRAPH, DROP_ARRAY, DROP_OBJECT
 * @chunk: device memory that must not be released before all have answered; NULL otherwise
 */
void warm_drop(struct session *session, const struct wire_message *message, struct chunk *chunk);

#endif
