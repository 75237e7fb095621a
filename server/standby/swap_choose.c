// Makes room (memory_policy = swap): where device memory does not fit, sessions with this policy
// are suspended, one after the other, until it does. The session that needs the memory (the asker)
// tries again when some has come back (session/reclaim.h).
//
//   at rest   no command in the ring, on the device or with the service, for REST_US and as long as
//             the memory takes to the host and back: a shorter rest is not worth the way. Offline
//             sessions go before online ones, then the session that has rested longest
//   at work   only for a session that comes back, never for an allocation: both sessions have been
//             promised their memory, so they take turns. The executor holds the commands, and work
//             on the device ends first. No online session goes for an offline session
//
// A session that has come, or come back, at the cost of another stays for STAYS times as long as
// the ways out and back took. So moves take a bounded part of the time, for any number of askers,
// and an allocation meanwhile gets its error.
//
// A session that holds no more than its guarantee does not go, nor does one that shares device
// memory: with it, others would have to go that may work.

#include "server/standby/stash.h"
#include "server/standby/swap.h"
#include "server/standby/swap_inside.h"

#include <stdio.h>

#include "server/config/config.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/loop/timer.h"
#include "server/session/export.h"
#include "server/session/guarantee.h"
#include "server/session/reclaim.h"
#include "server/session/session.h"

#define REST_US		  UINT64_C(100000)
#define REST_BYTES_PER_US 4096u /* to the host and back, about */
#define STAYS		  4u
#define STAY_LEAST_US	  UINT64_C(200000)
/* Time until the memory of a session that has left should be free. */
#define HOPE_US UINT64_C(1000000)
/* Pause before another look at a session whose executor is being replaced. */
#define SERVED_US UINT64_C(20000)
/* Pause before an asker tries again, if no other event wakes it. */
#define LOOK_MS UINT64_C(200)

/* The session's memory beyond its guarantee: free once the session has left. */
static uint64_t beyond(const struct session *session)
{
	uint64_t held = session->holdings.owned_bytes, own = session->terms.memory_guarantee;

	return held > own ? held - own : 0;
}

static bool may_go(const struct session *session, const struct session *asker)
{
	return !swap_is_with(session, asker) && session->terms.memory_policy == CONFIG_MEMORY_POLICY_SWAP &&
	       session->memory == SESSION_MEMORY_HERE && session_is_live(session) && !session->request &&
	       !session->holdings.backed_count && !session->holdings.shared_count && beyond(session);
}

/* The session's memory that the asker could have. */
static uint64_t within_reach(const struct session *session, const struct session *asker)
{
	return may_go(session, asker) ? beyond(session) : 0;
}

/* Time of the session's latest known activity. */
static uint64_t worked_us(const struct session *session)
{
	uint64_t active = word_acquire(&session->view.server->active) / 1000;

	return active > session->asked_us ? active : session->asked_us;
}

/* Certain, but slow: looks at all streams. A paused session does not work, even with commands in
 * its ring. */
static bool has_work(const struct session *session)
{
	return shm_view_in_doubt(&session->view) || (!session_is_paused(session) && swap_has_work(session));
}

/* When the session may go if it stays at rest. */
static uint64_t free_to_go_us(const struct session *session)
{
	uint64_t rested = worked_us(session) + REST_US + session->holdings.owned_bytes / REST_BYTES_PER_US;

	return rested > session->stays_until_us ? rested : session->stays_until_us;
}

/* True if `left` goes before `right`. @by: of a session, less goes first */
static bool goes_before(const struct session *left, const struct session *right,
	uint64_t (*by)(const struct session *session))
{
	if (left->terms.class != right->terms.class)
		return left->terms.class > right->terms.class;
	return by(left) < by(right);
}

static uint64_t stays_until(const struct session *session)
{
	return session->stays_until_us;
}

/* As far as the latest command shows. Return: NULL if no session rests */
static struct session *find_resting(const struct session *asker, uint64_t choice)
{
	struct session *session, *found = NULL;
	uint64_t now_us = timer_now_us();

	TAILQ_FOREACH (session, &asker->daemon->sessions, link)
		if (may_go(session, asker) && domain_serving(session->domain) &&
			session->passed_over != choice && free_to_go_us(session) <= now_us &&
			(!found || goes_before(session, found, worked_us)))
			found = session;
	return found;
}

static struct session *find_working(const struct session *asker, uint64_t choice)
{
	struct session *session, *found = NULL;
	uint64_t now_us = timer_now_us();

	TAILQ_FOREACH (session, &asker->daemon->sessions, link)
		if (may_go(session, asker) && session->passed_over != choice &&
			session->terms.class >= asker->terms.class && session->stays_until_us <= now_us &&
			(!found || goes_before(session, found, stays_until)))
			found = session;
	return found;
}

/* What the asker cannot have of a session's memory: what stays, and what is guaranteed and not
 * used. */
static uint64_t out_of_reach(const struct session *session, const struct session *asker)
{
	uint64_t stays = session->holdings.owned_bytes - within_reach(session, asker);
	bool is_kept = !swap_is_with(session, asker) && session->state == SESSION_SERVED &&
		       session->terms.memory_policy != CONFIG_MEMORY_POLICY_EVICT;

	return is_kept && session->terms.memory_guarantee > stays ? session->terms.memory_guarantee : stays;
}

/* True if the bytes fit once all sessions have left that may. */
static bool can_fit(const struct session *asker, uint64_t bytes)
{
	const struct daemon *daemon = asker->daemon;
	uint64_t left = exports_unheld_bytes(&daemon->exports), most = guarantee_device_bytes(daemon);
	const struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		left += out_of_reach(session, asker);
	return left <= most && bytes <= most - left;
}

/* However the swap ended, waiting requests are tried again. */
static void on_displaced(void *context, int32_t code, const char *text)
{
	struct daemon *daemon = context;

	(void)text;
	if (!code)
		daemon->counters.sessions_displaced++;
	daemon->displacing--;
	daemon->displaced_us = timer_now_us();
	reclaim_done(daemon, 1);
}

/* Return: true if the session leaves */
static bool displace(struct session *session, struct session *asker, enum swap_manner manner, uint64_t choice)
{
	struct daemon *daemon = session->daemon;
	const char *obstacle;
	char what[160];

	session->passed_over = choice;
	if (manner == SWAP_AT_REST && has_work(session))
		return false;
	daemon->displacing++;
	reclaim_begin(daemon);
	obstacle = swap_begin(session, manner, on_displaced, daemon);
	if (obstacle) {
		daemon->displacing--;
		reclaim_cancel(daemon);
		return false;
	}
	if (session->memory != SESSION_MEMORY_LEAVES)
		return false;
	snprintf(what, sizeof(what), "makes room for session %llu (process %d)",
		(unsigned long long)asker->number, (int)asker->pid);
	swap_note(session, what);
	swap_stays(asker, STAY_LEAST_US);
	return true;
}

static uint64_t rested_us(const struct session *session)
{
	return domain_serving(session->domain) ? free_to_go_us(session) : timer_now_us() + SERVED_US;
}

/* The session that will have rested, and be served, first; of those without activity since then.
 * Return: NULL: there is none */
static struct session *find_next(const struct session *asker, uint64_t since_us, uint64_t choice)
{
	struct session *session, *found = NULL;

	TAILQ_FOREACH (session, &asker->daemon->sessions, link)
		if (may_go(session, asker) && session->passed_over != choice &&
			session->stays_until_us <= since_us && worked_us(session) <= since_us &&
			(!found || rested_us(session) < rested_us(found)))
			found = session;
	return found;
}

/* Time when that session has rested; UINT64_MAX: never. */
static uint64_t next_rested_us(const struct session *asker, uint64_t since_us, uint64_t choice)
{
	struct session *session;

	while ((session = find_next(asker, since_us, choice)) && has_work(session))
		session->passed_over = choice;
	return session ? rested_us(session) : UINT64_MAX;
}

/* Time when the first session need not stay any more; UINT64_MAX: none. */
static uint64_t next_stayed_us(const struct session *asker, uint64_t now_us)
{
	const struct session *session;
	uint64_t next = UINT64_MAX;

	TAILQ_FOREACH (session, &asker->daemon->sessions, link)
		if (may_go(session, asker) && session->stays_until_us > now_us &&
			session->stays_until_us < next)
			next = session->stays_until_us;
	return next;
}

static bool displace_resting(struct session *asker)
{
	uint64_t choice = ++asker->daemon->choices;
	struct session *session;

	while ((session = find_resting(asker, choice)))
		if (displace(session, asker, SWAP_AT_REST, choice))
			return true;
	return false;
}

static bool displace_working(struct session *asker)
{
	uint64_t choice = ++asker->daemon->choices;
	struct session *session;

	while ((session = find_working(asker, choice)))
		if (displace(session, asker, SWAP_NOW, choice))
			return true;
	return false;
}

bool swap_is_displacing(const struct daemon *daemon)
{
	return daemon->displacing || timer_now_us() < daemon->displaced_us + HOPE_US;
}

uint64_t swap_make_room(struct session *asker, uint64_t bytes, uint64_t since_us)
{
	struct daemon *daemon = asker->daemon;
	uint64_t now_us = timer_now_us(), next;
	bool returns = asker->memory != SESSION_MEMORY_HERE;

	if (stash_give_back(daemon))
		return LOOK_MS;
	if (asker->terms.memory_policy != CONFIG_MEMORY_POLICY_SWAP || !can_fit(asker, bytes))
		return 0;
	/* Memory that becomes free now may be enough. */
	if (swap_is_displacing(daemon) && (daemon->displacing || reclaim_expects(daemon)))
		return LOOK_MS;
	if (displace_resting(asker))
		return LOOK_MS;
	next = next_rested_us(asker, since_us, daemon->choices);
	if (returns && next == UINT64_MAX && displace_working(asker))
		return LOOK_MS;
	if (returns && next_stayed_us(asker, now_us) < next)
		next = next_stayed_us(asker, now_us);
	if (next == UINT64_MAX)
		return since_us == SWAP_PATIENT ? LOOK_MS : 0;
	next = next > now_us ? (next - now_us) / 1000 + 1 : 1;
	return next < LOOK_MS ? next : LOOK_MS;
}

void swap_stays(struct session *session, uint64_t least_us)
{
	uint64_t until = timer_now_us() + least_us;

	if (until > session->stays_until_us)
		session->stays_until_us = until;
}

void swap_note_return(struct session *session, uint64_t took_us)
{
	uint64_t stay = STAYS * (took_us + session->left_us);

	swap_stays(session, stay > STAY_LEAST_US ? stay : STAY_LEAST_US);
}

/* Memory of all sessions of an owner that the asker could have at this moment. */
static uint64_t spare_of(uid_t owner, const struct session *asker, uint64_t now_us)
{
	const struct session *session;
	uint64_t spare = 0, room, bytes;

	TAILQ_FOREACH (session, &asker->daemon->sessions, link) {
		if (session->owner != owner || free_to_go_us(session) > now_us)
			continue;
		bytes = within_reach(session, asker);
		if (bytes && !has_work(session))
			spare += bytes;
	}
	room = spare ? swap_room(asker->daemon, owner) : 0;
	return spare < room ? spare : room;
}

uint64_t swap_spare(const struct session *asker)
{
	const struct session *session;
	uint64_t now_us = timer_now_us(), spare = 0;

	if (asker->terms.memory_policy != CONFIG_MEMORY_POLICY_SWAP)
		return 0;
	TAILQ_FOREACH (session, &asker->daemon->sessions, link)
		if (session_is_first_of_owner(session))
			spare += spare_of(session->owner, asker, now_us);
	return spare;
}
