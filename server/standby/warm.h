// Keeping standbys ready: a new one is told everything from the holdings, a warm one every change
// as it happens, or a little later. A standby therefore is at every moment a prefix of the same
// history as the active executor, without what was gone soon. Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_WARM_H
#define FRMPS_SERVER_STANDBY_WARM_H

#include "protocol/wire.h"

struct chunk;
struct domain;
struct holding;
struct session;
struct worker;

/** Ready was said: sends all opened sessions; the worker is WARM when it has executed them. */
void warm_start(struct worker *worker);

/** Tells an executor everything of one session. */
void warm_tell(struct worker *worker, struct session *session);

/** A standby knows everything: it may be needed at once. */
void warm_done(struct domain *domain, struct worker *worker);

/** Tells all standbys of a session that was opened. */
void warm_session(struct session *session);
/** Tells all standbys of something new that a session holds, now or later. */
void warm_entry(struct session *session, struct holding *entry);
/** The active executor is in trouble: moves are off, and standbys are told everything now. */
void warm_hurry(struct domain *domain);
/**
 * Tells all standbys of something that is no more.
 * @message: UNMAP_MEMORY, UNMAP_HOST, UNLOAD_MODULE, DROP_GRAPH, DROP_ARRAY, DROP_OBJECT
 * @chunk: device memory that must not be released before they have answered; NULL otherwise
 */
void warm_drop(struct session *session, const struct wire_message *message, struct chunk *chunk);

#endif
