// Rests between calls of the driver. See pace.h.

#include "server/executor/pace.h"

#include "server/executor/contain.h"
#include "server/executor/executor.h"

void pace_begin(struct pace *pace, struct executor *executor)
{
	*pace = (struct pace){.executor = executor, .since = clock_now()};
}

/* True if other threads may want the driver. */
static bool is_worth_it(struct executor *executor)
{
	return !executor_is_lost(executor) && !contain_is_open(executor);
}

bool pace_step(struct pace *pace)
{
	uint64_t worked = clock_now() - pace->since;
	struct timespec rest = {.tv_nsec = (long)(worked < PACE_REST_NS ? worked : PACE_REST_NS)};

	if (worked < PACE_WORK_NS || !is_worth_it(pace->executor))
		return true;
	/* A signal may cut the rest short: then other threads had less time. */
	nanosleep(&rest, NULL);
	pace->since = clock_now();
	return !pace->yields;
}
