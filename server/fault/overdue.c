// See overdue.h.

#include "server/fault/overdue.h"

#include <stdbool.h>

#include "server/fault/promote.h"
#include "server/incident/incident.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/worker/crew.h"
#include "server/worker/vitals.h"
#include "server/worker/worker.h"

static bool owes(const struct worker *worker)
{
	return !TAILQ_EMPTY(&worker->pending);
}

static bool is_activating(const struct worker *worker)
{
	return incident_is_activating(worker->domain->promotion.state);
}

/* How many looks a child may be silent; 0: any number. */
static unsigned looks_of(const struct worker *worker)
{
	switch (worker->state) {
	case WORKER_STARTING:
		return OVERDUE_LOOKS;
	case WORKER_WARMING:
	case WORKER_WARM:
		return owes(worker) ? (worker->domain ? OVERDUE_LOOKS : OVERDUE_LOOKS_KEEPER) : 0;
	case WORKER_ACTIVE:
		return owes(worker) ? is_activating(worker) ? OVERDUE_LOOKS_ACTIVATING : OVERDUE_LOOKS : 0;
	default:
		return 0;
	}
}

/* The first of several looks only notes the processor time so far. */
static bool stands_still(struct worker *worker)
{
	const struct crew *crew = worker->crew;
	struct vitals vitals;

	if (!promote_is_awaited(worker) || !crew->spawner->look(worker, &vitals)) {
		worker->still = 0;
		return false;
	}
	if (worker->still && vitals.processor_ms >= worker->processor_ms + OVERDUE_PROCESSOR_MS)
		worker->still = 0;
	worker->processor_ms = vitals.processor_ms;
	return worker->still++ >= OVERDUE_LOOKS_STILL;
}

static void on_ping(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	(void)context;
	(void)reply;
	(void)packet;
	worker->pinged = false;
}

/* An executor that serves may take as long for a request as kernels run. Ping is answered at
 * once. */
static void ping(struct worker *worker)
{
	struct wire_message message = {.type = WIRE_PING};

	if (worker->state != WORKER_ACTIVE || worker->pinged)
		return;
	worker->pinged = true;
	worker_request(worker, &message, NULL, 0, on_ping, NULL);
}

/* Return: true to look again. */
static bool look_at(struct worker *worker)
{
	unsigned looks = looks_of(worker);

	if (!looks)
		return false;
	if (stands_still(worker))
		worker_terminate(worker, "everybody waits for it, and it neither answers nor computes");
	else if (++worker->looks >= looks)
		worker_terminate(worker, "it does not answer any more");
	else
		ping(worker);
	return worker->state != WORKER_TERMINATING;
}

void overdue_look(void *context)
{
	struct crew *crew = context;
	struct worker *worker;
	bool again = false;

	TAILQ_FOREACH (worker, &crew->workers, crew_link)
		again |= look_at(worker);
	if (again)
		timer_start(crew->overdue_timer, WORKER_LOOK_MS);
}

unsigned overdue_s(const struct worker *worker)
{
	return owes(worker) ? worker->looks * (WORKER_LOOK_MS / 1000) : 0;
}

void overdue_came_up(struct crew *crew)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &crew->workers, crew_link)
		if (worker->still && worker->excuses < OVERDUE_EXCUSES_MAX) {
			worker->still = 0;
			worker->excuses++;
		}
}

void overdue_init(struct crew *crew)
{
	crew->overdue_timer = timer_new(crew->loop, overdue_look, crew);
}

void overdue_deinit(struct crew *crew)
{
	crew->overdue_timer = timer_free(crew->overdue_timer);
}
