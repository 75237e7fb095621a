// See keeping.h.

#include "server/daemon/keeping.h"

#include <stdio.h>
#include <string.h>

#include "server/daemon/sink_make.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/due.h"
#include "server/worker/words.h"
#include "server/worker/worker.h"

/* Pause before the next start, after a keeper that could not start or crashed: the first pause, and
 * the longest. */
#define RETRY_MS      1000u
#define RETRY_MOST_MS 60000u

static void try_later(struct daemon *daemon)
{
	uint64_t delay = RETRY_MS << (daemon->keeper_failures < 6 ? daemon->keeper_failures : 6);

	daemon->keeper_failures++;
	timer_start(daemon->keeper_timer, delay < RETRY_MOST_MS ? delay : RETRY_MOST_MS);
}

void keeping_start(struct daemon *daemon)
{
	struct worker_place place = {.number = daemon->keeper_number + 1};
	int r;

	if (daemon_has_failed(daemon) || daemon_is_drained(daemon))
		return;
	daemon->keeper_number++;
	daemon->crew.latest++;
	r = worker_start(&daemon->crew, &place, &daemon->keeper);
	if (r < 0) {
		daemon->keeper_number--;
		daemon->keeper = NULL;
		log_error("the keeper of the device memory cannot be started: %s; who asks for memory waits, "
			  "and it is tried again",
			strerror(-r));
		try_later(daemon);
	}
}

static void on_timer(void *context)
{
	struct daemon *daemon = context;

	if (!daemon->keeper && daemon->phase != DAEMON_LEAVES)
		keeping_start(daemon);
}

bool keeping_gone(struct daemon *daemon, const struct worker *keeper, char *ret_text, size_t text_size)
{
	daemon->keeper = NULL;
	/* Its end is meant, or the next one starts with the device. */
	if (daemon_is_drained(daemon))
		return true;
	if (!keeper->was_ready && daemon->phase == DAEMON_STARTS) {
		snprintf(ret_text, text_size, "the keeper of the device memory cannot start: %s",
			keeper->lost_text[0] ? keeper->lost_text : "it ended (its messages are above)");
		return false;
	}
	daemon->counters.keepers_lost++;
	log_warning("the keeper of the device memory is gone (%s): programs keep their memory, and who asks "
		    "for more waits for the next keeper",
		keeper->lost_text[0] ? keeper->lost_text : "it ended");
	if (keeper->was_ready)
		daemon->keeper_failures = 0;
	/* The next keeper may get the same request that crashed this keeper. */
	if (keeper->was_ready && !words_is_crash(keeper->exit_signal))
		keeping_start(daemon);
	else
		try_later(daemon);
	return true;
}

void keeping_ready(struct daemon *daemon)
{
	daemon->keeper->state = WORKER_WARM;
	daemon->keeper_failures = 0;
	/* Before memory: executors should know of a guard first. */
	sink_request_all(daemon);
	due_daemon(daemon, DAEMON_DUE_MEMORY);
}

void keeping_init(struct daemon *daemon)
{
	daemon->keeper_timer = timer_new(daemon->loop, on_timer, daemon);
}

void keeping_deinit(struct daemon *daemon)
{
	daemon->keeper_timer = timer_free(daemon->keeper_timer);
}
