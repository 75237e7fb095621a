// See overdue.h.

#include "server/worker/overdue.h"

#include <stdbool.h>

#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/worker/vitals.h"
#include "server/worker/worker.h"

static bool owes(const struct worker *worker)
{
	return !TAILQ_EMPTY(&worker->pending);
}

/* How many looks a child may be silent; 0: any number. */
static unsigned looks_of(const struct worker *worker)
{
	const struct worker_events *events = worker->daemon->worker_events;

	switch (worker->state) {
	case WORKER_STARTING:
		return OVERDUE_LOOKS;
	case WORKER_WARMING:
	case WORKER_WARM:
		return owes(worker) ? (worker->domain ? OVERDUE_LOOKS : OVERDUE_LOOKS_KEEPER) : 0;
	case WORKER_ACTIVE:
		return owes(worker) && events->is_activating(worker) ? OVERDUE_LOOKS_ACTIVATING : 0;
	default:
		return 0;
	}
}

/* The first look of a row only notes what it has had so far. */
static bool stands_still(struct worker *worker)
{
	const struct daemon *daemon = worker->daemon;
	struct vitals vitals;

	if (!daemon->worker_events->is_awaited(worker) || !daemon->spawner->look(worker, &vitals)) {
		worker->still = 0;
		return false;
	}
	if (worker->still && vitals.processor_ms >= worker->processor_ms + OVERDUE_PROCESSOR_MS)
		worker->still = 0;
	worker->processor_ms = vitals.processor_ms;
	return worker->still++ >= OVERDUE_LOOKS_STILL;
}

/* Return: whether it is to be looked at again. */
static bool look_at(struct worker *worker)
{
	unsigned looks = looks_of(worker);

	if (!looks)
		return false;
	if (stands_still(worker))
		worker_condemn(worker, "everybody waits for it, and it neither answers nor computes");
	else if (++worker->looks >= looks)
		worker_condemn(worker, "it does not answer any more");
	return worker->state != WORKER_CONDEMNED;
}

void overdue_look(void *context)
{
	struct daemon *daemon = context;
	struct domain *domain;
	struct worker *worker;
	bool again = daemon->keeper && look_at(daemon->keeper);

	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			again |= look_at(worker);
	if (again)
		timer_start(daemon->overdue_timer, OVERDUE_LOOK_MS);
}

unsigned overdue_keeper_s(const struct daemon *daemon)
{
	const struct worker *keeper = daemon->keeper;

	return keeper && owes(keeper) ? keeper->looks * (OVERDUE_LOOK_MS / 1000) : 0;
}

void overdue_came_up(struct daemon *daemon)
{
	struct domain *domain;
	struct worker *worker;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			worker->still = 0;
}

void overdue_expect(struct worker *worker)
{
	if (!owes(worker))
		worker->looks = worker->still = 0;
	if (!timer_running(worker->daemon->overdue_timer))
		timer_start(worker->daemon->overdue_timer, OVERDUE_LOOK_MS);
}

void overdue_heard(struct worker *worker)
{
	worker->looks = worker->still = 0;
}

void overdue_init(struct daemon *daemon)
{
	daemon->overdue_timer = timer_new(daemon->loop, overdue_look, daemon);
	log_bug_on(!daemon->overdue_timer);
}

void overdue_deinit(struct daemon *daemon)
{
	daemon->overdue_timer = timer_free(daemon->overdue_timer);
}
