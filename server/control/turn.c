// See turn.h. Who waits is found by a look at all operators: of these there are a few hundred at
// most (quota_guests()).

#include "server/control/turn.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/operator.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"

/* How much longer than a turn the rest behind it is. */
#define REST 4u

static struct operator* take(struct operator* operator)
{
	struct daemon *daemon = operator->daemon;

	operator->waits = false;
	TAILQ_REMOVE(&daemon->operators, &operator->guest, link);
	TAILQ_INSERT_TAIL(&daemon->operators, &operator->guest, link);
	connection_resume(operator->connection);
	return operator;
}

struct operator* turn_take(struct daemon *daemon, uid_t uid, const char *command)
{
	struct operator* operator;
	struct guest *guest;

	TAILQ_FOREACH (guest, &daemon->operators, link) {
		operator= operator_of(guest);
		if (operator->waits && guest->uid == uid && !strcmp(operator->request.command, command))
			return take(operator);
	}
	return NULL;
}

/* Users behind the latest one come before the others. */
static bool is_before(const struct daemon *daemon, uid_t uid, uid_t other)
{
	bool behind = uid > daemon->turns->latest, other_behind = other > daemon->turns->latest;

	return behind == other_behind ? uid < other : behind;
}

static struct operator* find_next(const struct daemon *daemon)
{
	struct operator* next = NULL;
	struct guest *guest;

	TAILQ_FOREACH (guest, &daemon->operators, link)
		if (operator_of(guest)->waits && (!next || is_before(daemon, guest->uid, next->guest.uid)))
			next = operator_of(guest);
	return next;
}

static void on_turn(void *context)
{
	struct daemon *daemon = context;
	struct operator* operator= find_next(daemon);
	uint64_t begin_us = timer_now_us();

	if (!operator)
		return;
	daemon->turns->latest = operator->guest.uid;
	operator_answer(take(operator));
	timer_start(daemon->turns->timer, 1 + (timer_now_us() - begin_us) * REST / 1000);
}

void turn_await(struct operator* operator)
{
	struct daemon *daemon = operator->daemon;

	operator->waits = true;
	connection_pause(operator->connection);
	if (!timer_running(daemon->turns->timer))
		timer_start(daemon->turns->timer, 0);
}

void turn_init(struct daemon *daemon)
{
	daemon->turns = calloc(1, sizeof(*daemon->turns));
	log_bug_on(!daemon->turns);
	daemon->turns->timer = timer_new(daemon->loop, on_turn, daemon);
	log_bug_on(!daemon->turns->timer);
}

void turn_deinit(struct daemon *daemon)
{
	timer_free(daemon->turns->timer);
	free(daemon->turns);
	daemon->turns = NULL;
}
