// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See overdue.h. worker->looks is how often a worker was looked at since it last said something, or since something
// is expected of it again.

#include "server/failover/overdue.h"

#include <stdbool.h>

#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"

/* How many looks it may be silent; 0: any number. */
static unsigned looks_of(const struct worker *worker)
{
	bool owes = !TAILQ_EMPTY(&worker->pending);

	switch (worker->state) {
	case WORKER_STARTING:
		return OVERDUE_LOOKS;
	case WORKER_WARMING:
	case WORKER_WARM:
		return owes ? OVERDUE_LOOKS : 0;
	case WORKER_ACTIVE:
		return owes && worker->domain->promotion.state == PROMOTE_ACTIVATING
			       ? OVERDUE_LOOKS_ACTIVATING
			       : 0;
	default:
		return 0;
	}
}

/* Return: whether it is to be looked at again. */
static bool look_at(struct worker *worker)
{
	unsigned looks = looks_of(worker);

	if (!looks)
		return false;
	if (++worker->looks < looks)
		return true;
	worker_condemn(worker, "it does not answer any more");
	return false;
}

void overdue_look(void *context)
{
	struct daemon *daemon = context;
	struct domain *domain;
	struct worker *worker;
	bool again = false;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			again |= look_at(worker);
	if (again)
		timer_start(daemon->overdue_timer, OVERDUE_LOOK_MS);
}

void overdue_begin(struct daemon *daemon)
{
	if (!timer_running(daemon->overdue_timer))
		timer_start(daemon->overdue_timer, OVERDUE_LOOK_MS);
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
