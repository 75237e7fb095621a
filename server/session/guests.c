// See guests.h. Whoever comes gets in, so that nobody is kept out by what others have open; who
// goes has had his time: a visitor that means well says what it is as soon as it is connected.
//
// Counting is quadratic, over some hundred guests at most, and only where there is no room.

#include "server/session/guests.h"

#include <stdbool.h>
#include <sys/types.h>

#include "server/session/daemon.h"
#include "server/session/desk.h"
#include "server/session/quota.h"
#include "server/session/visitor.h"

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

unsigned guests_count_operators(const struct daemon *daemon, uid_t uid)
{
	const struct guest *caller;
	unsigned count = 0;

	TAILQ_FOREACH (caller, &daemon->operators, link)
		count += caller->uid == uid;
	return count;
}

/* Return: whether this user has more than the greediest so far, who he is then. */
static bool is_greedier(const struct daemon *daemon, uid_t uid, unsigned *most)
{
	unsigned count = visitor_count(daemon, uid) + guests_count_operators(daemon, uid);

	if (count <= *most)
		return false;
	*most = count;
	return true;
}

/* Of users who have as many, the one who has been there for longest: one person may have many
 * names, each with one visitor, and then whoever has just come is not the one to go. */
static uid_t find_greediest(const struct daemon *daemon)
{
	const struct guest *caller;
	const struct visitor *visitor;
	unsigned most = 0;
	uid_t uid = 0;

	TAILQ_FOREACH (visitor, &daemon->visitors, link)
		if (is_greedier(daemon, visitor->peer.uid, &most))
			uid = visitor->peer.uid;
	TAILQ_FOREACH (caller, &daemon->operators, link)
		if (is_greedier(daemon, caller->uid, &most))
			uid = caller->uid;
	return uid;
}

/* His oldest visitor; an operator has said what he wants and goes only where there is none. */
static void send_one_away(struct daemon *daemon, uid_t uid)
{
	struct guest *caller;
	struct visitor *visitor;

	userlog_event(daemon, uid, USERLOG_guest, LOG_LEVEL_WARNING,
		"a connection of uid %lld is closed: of %u that are no programs' he has the most",
		(long long)uid, count_all(daemon));
	TAILQ_FOREACH (visitor, &daemon->visitors, link)
		if (visitor->peer.uid == uid) {
			visitor_free(visitor);
			return;
		}
	TAILQ_FOREACH (caller, &daemon->operators, link)
		if (caller->uid == uid) {
			daemon->desk->dismiss(caller);
			return;
		}
}

void guests_make_room(struct daemon *daemon)
{
	while (count_all(daemon) >= quota_guests(daemon))
		send_one_away(daemon, find_greediest(daemon));
}
