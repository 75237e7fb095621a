// See guests.h. A new connection always gets in, so the open connections of other users keep nobody
// out. The connection that goes has had its time: a well-behaved visitor sends its first message as
// soon as the connection exists.
//
// Counting is quadratic, over some hundred guests at most, and only where there is no room.

#include "server/door/guests.h"

#include <stdbool.h>
#include <sys/types.h>

#include "server/session/daemon.h"
#include "server/control/caller.h"
#include "server/session/owner.h"
#include "server/daemon/quota.h"
#include "server/door/visitor.h"
#include "server/session/userlog.h"

static unsigned count_all(const struct daemon *daemon)
{
	const struct guest *caller;
	const struct visitor *visitor;
	unsigned count = 0;

	TAILQ_FOREACH (visitor, &daemon->visitors, link)
		count++;
	TAILQ_FOREACH (caller, &daemon->operators, link)
		count++;
	return count;
}

static unsigned count_operators_of(const struct daemon *daemon, uid_t owner)
{
	const struct guest *caller;
	unsigned count = 0;

	TAILQ_FOREACH (caller, &daemon->operators, link)
		count += owner_of(caller->uid) == owner;
	return count;
}

/* Return: true if this owner has more guests than the greediest so far; then *most is his
 * number. */
static bool is_greedier(const struct daemon *daemon, uid_t owner, unsigned *most)
{
	unsigned count = visitor_count(daemon, owner) + count_operators_of(daemon, owner);

	if (count <= *most)
		return false;
	*most = count;
	return true;
}

/* Of owners with equally many guests, the owner of the oldest: one person may have many user names,
 * each with a single visitor, and then the newest connection should not be the one to go. */
static uid_t find_greediest(const struct daemon *daemon)
{
	const struct guest *caller;
	const struct visitor *visitor;
	unsigned most = 0;
	uid_t owner = 0;

	TAILQ_FOREACH (visitor, &daemon->visitors, link)
		if (is_greedier(daemon, visitor->peer.owner, &most))
			owner = visitor->peer.owner;
	TAILQ_FOREACH (caller, &daemon->operators, link)
		if (is_greedier(daemon, owner_of(caller->uid), &most))
			owner = owner_of(caller->uid);
	return owner;
}

/* Disconnects the owner's oldest visitor; an operator has sent a request and goes only if the owner
 * has no visitor. */
static void send_one_away(struct daemon *daemon, uid_t owner)
{
	struct guest *caller;
	struct visitor *visitor;

	userlog_event(daemon, owner, USERLOG_guest, LOG_LEVEL_WARNING,
		"a connection of uid %lld is closed: of %u that are no programs' he has the most",
		(long long)owner, count_all(daemon));
	TAILQ_FOREACH (visitor, &daemon->visitors, link)
		if (visitor->peer.owner == owner) {
			visitor_free(visitor);
			return;
		}
	TAILQ_FOREACH (caller, &daemon->operators, link)
		if (owner_of(caller->uid) == owner) {
			caller_dismiss(caller);
			return;
		}
}

/* A visitor that has sent Hello is greeted rather than sent away. */
static void make_room_for_one(struct daemon *daemon, uid_t owner)
{
	if (!visitor_hurry(daemon, owner))
		send_one_away(daemon, owner);
}

void guests_make_room(struct daemon *daemon)
{
	while (count_all(daemon) >= quota_guests(daemon))
		make_room_for_one(daemon, find_greediest(daemon));
}
