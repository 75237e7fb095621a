// Separation. A hit in a guard proves its author only if a single program had kernels running
// (executor/suspect.c). Beside a busy program that never happens by itself. So the first hit
// without an author moves the guard's session into an executor of its own, and the next hit names
// its author:
//
//   the session itself   no other program runs in its new executor: the session is the author
//   another program      the old executor maps nothing at those addresses any more: the write is a
//                        fault, and its kernel is known as that of any fault
//
// No program gets an error for the first hit. The session keeps the executor, half a GiB of device
// memory, until the session ends. Only APART_MAX programs of a user have executors of their own at
// a time, for any reason; at that bound no other session moves for this.

#include "server/standby/separate.h"

#include <stddef.h>

#include "server/config/config.h"
#include "server/fault/verdict.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/owner.h"
#include "server/session/session.h"
#include "server/standby/move.h"
#include "server/worker/worker.h"

/* Programs of one user that have executors of their own. */
#define APART_MAX 4u
/* How long the executor may take to start. */
#define START_MS 30000u
/* Between two tries for a session: each try fails while the device has no memory for another
 * context. */
#define RETRY_US 120000000u

#define REASON "its guard was hit while other programs ran"

static unsigned count_apart(const struct daemon *daemon, uid_t owner)
{
	const struct domain *domain;
	unsigned count = 0;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		count += domain->alone && owner_of(domain->identity.uid) == owner && !domain->retiring;
	return count;
}

/* Return: NULL or why not. */
static const char *obstacle(const struct session *session)
{
	const struct daemon *daemon = session->daemon;

	if (daemon->config->guard != CONFIG_GUARD_ERROR)
		return "no program gets an error for a hit (guard = warn)";
	if (session->domain->alone)
		return "it is alone already, and its old executor has its guard yet";
	if (session->apart_us && timer_now_us() - session->apart_us < RETRY_US)
		return "a move was tried a moment ago";
	if (count_apart(daemon, session->owner) >= APART_MAX)
		return "enough programs of its user have executors of their own";
	return NULL;
}

static const char *begin(struct domain *domain, uint64_t owner)
{
	struct session *session = domain_find_session(domain, owner);
	const char *text = session ? obstacle(session) : "it is gone";

	if (text)
		return text;
	text = move_begin(session, MOVE_GUARD, REASON, START_MS, NULL, NULL);
	if (!text)
		session->apart_us = timer_now_us();
	return text;
}

/* The executor has already notified the culprit. */
void separate_take_stray(struct worker *worker, uint64_t owner, const struct wire_stray *stray)
{
	struct counters *counters = &worker->daemon->counters;
	const char *stays;

	if (stray->culprit)
		counters->guard_hits++;
	else
		counters->guard_hits_unproved++;
	stays = stray->culprit ? NULL : begin(worker->domain, owner);
	verdict_stray(worker->domain, owner, stray, stays);
}
