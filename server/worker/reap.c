// See reap.h.

#include "server/worker/reap.h"

#include "server/loop/timer.h"
#include "server/worker/crew.h"
#include "server/worker/vitals.h"
#include "server/worker/worker.h"

#define LOOK_MS 1000u

/* Return: the number of looks in a row that found no progress. */
static unsigned count_still(struct worker *worker)
{
	struct vitals vitals;

	if (!worker->crew->spawner->look(worker, &vitals))
		return worker->still = 0;
	if (vitals.is_ending && vitals.processor_ms != worker->processor_ms)
		worker->still = 0;
	worker->processor_ms = vitals.processor_ms;
	return ++worker->still;
}

void reap_look(void *context)
{
	struct worker *worker = context;

	timer_start(worker->reap_timer, LOOK_MS);
	if (count_still(worker) < REAP_LOOKS)
		return;
	worker->due |= WORKER_DUE_STAYS;
	worker->crew->is_due = true;
}

void reap_await(struct worker *worker)
{
	if (worker->reap_timer)
		return;
	worker->still = 0;
	worker->reap_timer = timer_new(worker->crew->loop, reap_look, worker);
	timer_start(worker->reap_timer, LOOK_MS);
}
