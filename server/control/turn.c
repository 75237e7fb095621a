// See turn.h. A walk over all operators finds those that wait: there are a few hundred at most
// (quota_guests()).

#include "server/control/turn.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/caller.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"

/* Length of the rest after a turn, as a multiple of the turn. */
#define REST 4u

static struct caller *take(struct caller *caller)
{
	struct daemon *daemon = caller->daemon;

	caller->waits = false;
	TAILQ_REMOVE(&daemon->operators, &caller->guest, link);
	TAILQ_INSERT_TAIL(&daemon->operators, &caller->guest, link);
	connection_resume(caller->connection);
	return caller;
}

struct caller *turn_take(struct daemon *daemon, uid_t uid, const char *command)
{
	struct caller *caller;
	struct guest *guest;

	TAILQ_FOREACH (guest, &daemon->operators, link) {
		caller = caller_of(guest);
		if (caller->waits && guest->uid == uid && !strcmp(caller->request.command, command))
			return take(caller);
	}
	return NULL;
}

/* Users after the latest come before the others. */
static bool is_before(const struct daemon *daemon, uid_t uid, uid_t other)
{
	bool behind = uid > daemon->turns->latest, other_behind = other > daemon->turns->latest;

	return behind == other_behind ? uid < other : behind;
}

static struct caller *find_next(const struct daemon *daemon)
{
	struct caller *next = NULL;
	struct guest *guest;

	TAILQ_FOREACH (guest, &daemon->operators, link)
		if (caller_of(guest)->waits && (!next || is_before(daemon, guest->uid, next->guest.uid)))
			next = caller_of(guest);
	return next;
}

static void on_turn(void *context)
{
	struct daemon *daemon = context;
	struct caller *caller = find_next(daemon);
	uint64_t begin_us = timer_now_us();

	if (!caller)
		return;
	daemon->turns->latest = caller->guest.uid;
	caller_answer(take(caller));
	timer_start(daemon->turns->timer, 1 + (timer_now_us() - begin_us) * REST / 1000);
}

void turn_await(struct caller *caller)
{
	struct daemon *daemon = caller->daemon;

	caller->waits = true;
	connection_pause(caller->connection);
	if (!timer_running(daemon->turns->timer))
		timer_start(daemon->turns->timer, 0);
}

void turn_init(struct daemon *daemon)
{
	daemon->turns = calloc(1, sizeof(*daemon->turns));
	log_bug_on(!daemon->turns);
	daemon->turns->timer = timer_new(daemon->loop, on_turn, daemon);
}

void turn_deinit(struct daemon *daemon)
{
	timer_free(daemon->turns->timer);
	free(daemon->turns);
	daemon->turns = NULL;
}
