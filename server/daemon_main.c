// The daemon as a process: the first life of a service starts everything, a later life adopts
// everything; then the loop runs until the service ends. See session/daemon.h for the states,
// holder/holder.h for lives.

#include "server/daemon_main.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "protocol/place.h"
#include "server/adopt/adopt.h"
#include "server/config/config.h"
#include "server/daemon/witnesses.h"
#include "server/holder/holder.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/watch.h"
#include "server/priority.h"
#include "server/daemon/children.h"
#include "server/service.h"
#include "server/session/daemon.h"
#include "server/door/listener.h"
#include "server/session/reclaim.h"
#include "server/worker/supervise.h"

/* Messages of the holder. */
static void on_holder(void *context)
{
	struct daemon *daemon = context;
	enum store_event event;
	unsigned count;
	int status;
	pid_t pid;

	while ((event = store_hear(daemon->store, &pid, &status, &count)) != STORE_NOTHING) {
		if (event == STORE_STOP)
			daemon_stop(daemon);
		else if (event == STORE_SYNCED)
			reclaim_synced(daemon, count);
		else
			children_reaped(&daemon->crew, pid, status);
	}
}

static int start_listening(struct daemon *daemon)
{
	char text[400] = "", path[PLACE_BYTES];
	int r;

	daemon_socket(daemon, path);
	r = listener_new(daemon, path, &daemon->listener, text, sizeof(text));

	if (r)
		log_error("%s", r < 0 ? strerror(-r) : text);
	return r;
}

static int start(struct daemon *daemon, const struct legacy *legacy)
{
	if (legacy->lives)
		return adopt(daemon, legacy);
	return start_listening(daemon) || daemon_start(daemon) < 0;
}

static void stop_as_ordered(struct daemon *daemon, const struct legacy *legacy)
{
	for (unsigned i = 0; i < legacy->stops; i++)
		daemon_stop(daemon);
}

/* Programs work on. The holder starts the next life after a pause, a few times in a row: then there
 * may be what is missing now, most likely memory. */
static _Noreturn void end_life(void)
{
	log_error("this daemon cannot take over: it ends");
	abort();
}

static void run(struct daemon *daemon, const struct legacy *legacy)
{
	if (start(daemon, legacy)) {
		if (legacy->lives)
			end_life();
		daemon->exit_code = 1;
		daemon_leave(daemon);
	} else {
		witnesses_follow_log(daemon);
		if (daemon->device_known)
			witnesses_follow_device(daemon);
		store_up(daemon->store);
		stop_as_ordered(daemon, legacy);
	}
	/* Returns at once if the end has been reached already. */
	uv_run(daemon->loop, UV_RUN_DEFAULT);
	daemon_deinit(daemon);
	/* The thread that reads the configuration may wait for a user database for ever; exit()
	 * would wait for that thread, too. */
	if (daemon->reload) {
		log_info("stopped");
		_exit(daemon->exit_code);
	}
	uv_run(daemon->loop, UV_RUN_DEFAULT);
}

int daemon_main(const struct config *config, const struct heritage *heritage, const struct legacy *legacy)
{
	struct store *store = store_open(legacy);
	struct daemon daemon;
	uv_loop_t loop;

	if (!store && legacy->lives)
		end_life();
	if (!store)
		return 1;
	priority_raise();
	signal(SIGPIPE, SIG_IGN);
	/* Opening a file while its lease is just being taken (handout.c) raises this signal. */
	signal(SIGIO, SIG_IGN);
	uv_loop_init(&loop);
	daemon_init(&daemon, &loop, config, heritage, &supervise_spawner, store);
	daemon.holder = watch_new(&loop, dup(store_socket(store)), on_holder, &daemon);
	log_bug_on(!daemon.holder);
	run(&daemon, legacy);
	uv_loop_close(&loop);
	store_close(store);
	log_info("stopped");
	return daemon.exit_code;
}
