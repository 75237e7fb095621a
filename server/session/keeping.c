// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See keeping.h.

#include "server/session/keeping.h"

#include <stdio.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/failover/overdue.h"
#include "server/failover/vitals.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/client.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/reclaim.h"

/* Pause before the next one where one could not start: the first, and at most. */
#define RETRY_MS      1000u
#define RETRY_MOST_MS 60000u
/* How often an operator is told of one that does not answer: every ten minutes. */
#define SAY_LOOKS 60u

void keeping_start(struct daemon *daemon)
{
	int r;

	daemon->keeper_number++;
	r = worker_start(daemon, NULL, ROLE_KEEPER, &daemon->keeper);
	if (r < 0) {
		daemon->keeper_number--;
		daemon->keeper = NULL;
		log_error("the keeper cannot be started: %s", strerror(-r));
		timer_start(daemon->keeper_timer, RETRY_MOST_MS);
	}
}

static void on_timer(void *context)
{
	struct daemon *daemon = context;

	if (!daemon->keeper && !daemon->leaving)
		keeping_start(daemon);
}

/* All device memory went with the keeper: there is nothing to move sessions to. */
static void end_everything(struct daemon *daemon)
{
	struct client *client = TAILQ_FIRST(&daemon->clients), *next;
	struct domain *domain = TAILQ_FIRST(&daemon->domains);

	for (; client; client = next) {
		next = TAILQ_NEXT(client, link);
		client_finish(client, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_RPC_FAILURE,
			"the service lost the process that keeps the device memory");
		client_end(client, 0);
	}
	/* One that goes may take another one with it. */
	while (domain)
		if (domain->retiring) {
			domain = TAILQ_NEXT(domain, link);
		} else {
			domain_retire(domain);
			domain = TAILQ_FIRST(&daemon->domains);
		}
}

void keeping_gone(struct daemon *daemon, const struct worker *keeper)
{
	uint64_t delay = RETRY_MS << (daemon->keeper_failures < 6 ? daemon->keeper_failures : 6);
	char text[400];

	daemon->keeper = NULL;
	if (!keeper->was_ready && !daemon->ready) {
		snprintf(text, sizeof(text), "the keeper of the device memory cannot start: %s",
			keeper->lost_text[0] ? keeper->lost_text : "it ended (its messages are above)");
		daemon_fail(daemon, text);
		return;
	}
	daemon->counters.keepers_lost++;
	log_error("the keeper of the device memory is gone (%s): every client's memory is lost",
		keeper->lost_text[0] ? keeper->lost_text : "it ended");
	end_everything(daemon);
	daemon->keeper_failures = keeper->was_ready ? 0 : daemon->keeper_failures + 1;
	if (keeper->was_ready) {
		keeping_start(daemon);
		daemon_prewarm(daemon);
	} else {
		timer_start(daemon->keeper_timer, delay < RETRY_MOST_MS ? delay : RETRY_MOST_MS);
	}
}

/* Programs that would lose something: one that was told an error has lost it already. */
static unsigned count_holders(const struct daemon *daemon)
{
	const struct client *client;
	unsigned count = 0;

	TAILQ_FOREACH (client, &daemon->clients, link)
		count += client->holdings.memory_bytes && client_is_live(client);
	return count;
}

static void say_overdue(const struct worker *keeper, unsigned holders)
{
	struct vitals vitals;
	bool stopped = keeper->daemon->spawner->look(keeper, &vitals) && vitals.stopped;

	log_error("keeper %d has not answered for %u s: whoever asks for device memory waits. It is left "
		  "alone as long as programs have such memory (%u do), which would go with it",
		(int)keeper->pid, overdue_keeper_s(keeper->daemon), holders);
	if (stopped)
		log_error("it is stopped: kill -CONT %d lets it go on", (int)keeper->pid);
	else
		log_error("kill -KILL %d ends it and every program: the service then starts another one",
			(int)keeper->pid);
}

void keeping_overdue(struct daemon *daemon)
{
	unsigned holders = count_holders(daemon), looks = daemon->keeper->looks;

	if (!holders)
		worker_condemn(daemon->keeper, "it does not answer any more");
	else if ((looks - OVERDUE_LOOKS_KEEPER) % SAY_LOOKS == 0)
		say_overdue(daemon->keeper, holders);
}

void keeping_ready(struct daemon *daemon)
{
	daemon->keeper->state = WORKER_WARM;
	daemon->keeper_failures = 0;
	reclaim_retry(daemon);
}

void keeping_init(struct daemon *daemon)
{
	daemon->keeper_timer = timer_new(daemon->loop, on_timer, daemon);
	log_bug_on(!daemon->keeper_timer);
}

void keeping_deinit(struct daemon *daemon)
{
	daemon->keeper_timer = timer_free(daemon->keeper_timer);
}
