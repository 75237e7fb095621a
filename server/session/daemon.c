// The daemon: start and end, events of workers, the choice of a program's domain. See daemon.h for
// the states.

#include "server/session/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/notify.h"
#include "server/loop/timer.h"
#include "server/loop/watch.h"
#include "server/role.h"
#include "server/session/desk.h"
#include "server/session/domain.h"
#include "server/session/keeping.h"
#include "server/session/listener.h"
#include "server/session/offender.h"
#include "server/session/records.h"
#include "server/session/request.h"
#include "server/session/rooms.h"
#include "server/session/guarantee.h"
#include "server/session/session.h"
#include "server/session/visitor.h"
#include "server/worker/overdue.h"
#include "server/worker/worker.h"

/* Time that children have to end after Shutdown. */
#define LEAVE_MS 3000u

/*
 * Events of workers
 */

static void copy_device(struct backend_device *device, const struct wire_ready *ready)
{
	const struct wire_device *from = &ready->device;

	memset(device, 0, sizeof(*device));
	snprintf(device->name, sizeof(device->name), "%s", from->name);
	if (from->uuid.count == sizeof(device->uuid))
		memcpy(device->uuid, from->uuid.at, sizeof(device->uuid));
	for (uint32_t i = 0; i < from->attributes.count && i < BACKEND_DEVICE_ATTRS; i++)
		device->attributes[i] = from->attributes.at[i];
	for (uint32_t i = 0; i < from->limits.count && i < BACKEND_DEVICE_LIMITS; i++)
		device->limits[i] = from->limits.at[i];
	device->total_bytes = from->total_bytes;
	device->priority_least = from->priority_least;
	device->priority_greatest = from->priority_greatest;
	device->driver_version = ready->driver_version;
	device->sm_granule = ready->sm_granule;
	device->sm_units = ready->sm_units;
}

static void become_ready(struct daemon *daemon)
{
	char text[300];

	if (daemon->ready || !daemon->device_known || !daemon->keeper || daemon->keeper->state != WORKER_WARM)
		return;
	/* The service would refuse every program. */
	if (!daemon->leaving && guarantee_refuses_rules(daemon, &daemon->rules, text, sizeof(text))) {
		daemon_fail(daemon, text);
		daemon->exit_code = EX_CONFIG;
		return;
	}
	daemon->ready = true;
	daemon_keep(daemon);
	log_info("ready: %s backend, %s, driver %d, socket %s", daemon->heritage->backend,
		daemon->device.name, daemon->device.driver_version, daemon->config->socket);
	if (notify_manager("READY=1"))
		log_error("the service manager cannot be told that the service is ready");
}

void daemon_worker_ready(struct worker *worker, const struct wire_ready *ready)
{
	struct daemon *daemon = worker->daemon;

	worker->was_ready = true;
	if (worker->role == ROLE_KEEPER) {
		keeping_ready(daemon);
	} else {
		/* Later reports may be under the influence of a user's programs. */
		if (!daemon->device_known)
			copy_device(&daemon->device, ready);
		daemon->device_known = true;
		daemon->fault_room->device_known(daemon);
		store_put_single(daemon->store, RECORD_DEVICE, &daemon->device, sizeof(daemon->device));
		overdue_came_up(&daemon->crew);
		daemon->standby_room->executor_ready(worker);
		domain_fill_all(worker->domain);
	}
	become_ready(daemon);
}

void daemon_worker_offence(struct worker *worker, uint64_t number, const char *reason)
{
	struct session *session = daemon_find_session(worker->daemon, number);

	if (session && session->domain == worker->domain)
		session_reject(session, reason);
}

void daemon_worker_troubled(struct worker *worker)
{
	if (worker->domain)
		domain_keep_all(worker->domain, false);
	else
		worker_keep(worker);
}

static bool has_workers(const struct daemon *daemon)
{
	const struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (!TAILQ_EMPTY(&domain->workers))
			return true;
	return daemon->keeper != NULL;
}

/* A child that was asked to leave hangs up before its end; the stop timer ends a child that
 * stays. */
void daemon_worker_hung_up(struct worker *worker, const char *reason)
{
	char text[128];

	snprintf(text, sizeof(text), "its connection is over: %s", reason);
	if (!worker->daemon->leaving)
		worker_condemn(worker, text);
}

void daemon_worker_given_up(struct worker *worker, const char *text)
{
	const struct event_about about = events_about_user(worker->domain);

	if (worker->daemon->leaving || (worker->domain && worker->domain->retiring))
		log_debug("%s", text);
	else
		events_note(worker->daemon, EVENT_lost, LOG_LEVEL_WARNING, &about, "%s", text);
}

void daemon_worker_gone(struct worker *worker)
{
	struct daemon *daemon = worker->daemon;
	struct domain *domain = worker->domain;
	char text[400];

	if (!domain && daemon->leaving)
		daemon->keeper = NULL;
	else if (!domain && !keeping_gone(daemon, worker, text, sizeof(text)))
		daemon_fail(daemon, text);
	else if (domain)
		domain_worker_gone(domain, worker);
	if (domain && !worker->was_ready && !daemon->ready && !daemon->leaving) {
		snprintf(text, sizeof(text), "no executor can start: %s",
			worker->lost_text[0] ? worker->lost_text : "it ended (its messages are above)");
		daemon_fail(daemon, text);
	}
	if (daemon->leaving && !has_workers(daemon))
		uv_stop(daemon->loop);
}

static void on_emptied(struct daemon *daemon)
{
	if (daemon->draining && !daemon->leaving && TAILQ_EMPTY(&daemon->sessions))
		daemon_leave(daemon);
}

/*
 * Stop
 */

static void for_all_workers(struct daemon *daemon, void (*act)(struct worker *worker))
{
	struct domain *domain;
	struct worker *worker;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			act(worker);
	if (daemon->keeper)
		act(daemon->keeper);
}

static void ask_to_leave(struct worker *worker)
{
	struct wire_message message = {.type = WIRE_SHUTDOWN};

	if (worker->state != WORKER_CONDEMNED)
		worker_post(worker, &message);
}

static void kill_worker(struct worker *worker)
{
	worker_condemn(worker, "it does not leave");
}

/* A session that no executor knows is freed at the first step, and such an end may free others. */
void daemon_end_sessions(
	struct daemon *daemon, const struct domain *domain, uint32_t state, int32_t code, const char *reason)
{
	struct session *session = TAILQ_FIRST(&daemon->sessions), *next;

	if (session)
		session_ref(session);
	for (; session; session = next) {
		next = TAILQ_NEXT(session, link);
		if (next)
			session_ref(next);
		if (!domain || session->domain == domain) {
			session_refuse(session, code, reason);
			session_finish(session, state, code, reason);
			session_end(session, 0);
		}
		session_unref(session);
	}
}

void daemon_leave(struct daemon *daemon)
{
	if (daemon->leaving)
		return;
	daemon->draining = daemon->leaving = true;
	daemon->listener = listener_free(daemon->listener);
	daemon->fault_room->leaving(daemon);
	daemon_end_sessions(
		daemon, NULL, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, "the service stops");
	while (!TAILQ_EMPTY(&daemon->visitors))
		visitor_free(TAILQ_FIRST(&daemon->visitors));
	while (!TAILQ_EMPTY(&daemon->operators))
		daemon->desk->dismiss(TAILQ_FIRST(&daemon->operators));
	for_all_workers(daemon, ask_to_leave);
	if (has_workers(daemon))
		timer_start(daemon->stop_timer, LEAVE_MS);
	else
		uv_stop(daemon->loop);
}

static void on_stop_timer(void *context)
{
	struct daemon *daemon = context;

	if (daemon->leaving)
		for_all_workers(daemon, kill_worker);
	else
		daemon_leave(daemon);
}

void daemon_stop(struct daemon *daemon)
{
	if (daemon->leaving)
		return;
	if (daemon->draining || TAILQ_EMPTY(&daemon->sessions) || !daemon->stop_seconds) {
		daemon_leave(daemon);
		return;
	}
	log_info("stopping: waits %llu s at most for %u programs (frmpsctl status lists them)",
		(unsigned long long)daemon->stop_seconds, daemon->session_count);
	notify_manager("STOPPING=1");
	/* The socket is closed last: operators can see and end the programs that the daemon waits
	 * for. */
	daemon->draining = true;
	daemon->stop_until_us = timer_now_us() + daemon->stop_seconds * 1000000;
	timer_start(daemon->stop_timer, daemon->stop_seconds * 1000);
}

/* By a signal to the holder, so that a later life of the daemon ends, too. */
void daemon_quit(struct daemon *daemon, uint64_t seconds)
{
	daemon->stop_seconds = seconds;
	daemon_keep(daemon);
	if (!daemon->holder || kill(getppid(), SIGTERM) < 0)
		daemon_stop(daemon);
}

void daemon_fail(struct daemon *daemon, const char *reason)
{
	if (daemon->leaving)
		return;
	log_error("%s", reason);
	daemon->exit_code = 1;
	daemon_leave(daemon);
}

/*
 * Start
 */

void daemon_init(struct daemon *daemon, struct uv_loop_s *loop, const struct config *config,
	const struct heritage *heritage, const struct spawner *spawner, struct store *store,
	const struct rooms *rooms)
{
	struct rlimit files;

	memset(daemon, 0, sizeof(*daemon));
	daemon->loop = loop;
	daemon->config = config;
	daemon->stop_seconds = config->stop_seconds;
	config_rules(config, &daemon->rules);
	daemon->heritage = heritage;
	daemon->store = store;
	daemon->crew = (struct crew){.daemon = daemon,
		.loop = loop,
		.heritage = heritage,
		.spawner = spawner,
		.events = rooms->worker_events,
		.store = store};
	TAILQ_INIT(&daemon->crew.workers);
	daemon->desk = rooms->desk;
	daemon->fault_room = rooms->fault;
	daemon->standby_room = rooms->standby;
	daemon->accept = visitor_new;
	daemon->emptied = on_emptied;
	TAILQ_INIT(&daemon->domains);
	TAILQ_INIT(&daemon->sessions);
	TAILQ_INIT(&daemon->visitors);
	TAILQ_INIT(&daemon->operators);
	reclaim_init(daemon, request_advance);
	userlog_init(daemon);
	daemon->desk->open(daemon);
	handouts_init(&daemon->handouts, loop);
	exports_init(&daemon->exports, loop);
	TAILQ_INIT(&daemon->offenders);
	events_init(daemon);
	daemon->started_us = timer_now_us();
	daemon->fds_max = getrlimit(RLIMIT_NOFILE, &files) < 0 ? 1024 : files.rlim_cur;
	daemon->records_max = STORE_BYTES;
	daemon->stop_timer = timer_new(loop, on_stop_timer, daemon);
	daemon->greeting = timer_new(loop, visitor_take_turn, daemon);
	log_bug_on(!daemon->stop_timer || !daemon->greeting);
	overdue_init(&daemon->crew);
	keeping_init(daemon);
	compiling_init(daemon, request_finish, request_compiled);
}

int daemon_start(struct daemon *daemon)
{
	keeping_start(daemon);
	if (!daemon->keeper)
		return -EAGAIN;
	domain_prewarm(daemon);
	if (!TAILQ_EMPTY(&daemon->domains))
		return 0;
	log_error("there is no memory for the first executors");
	return -ENOMEM;
}

void daemon_deinit(struct daemon *daemon)
{
	struct domain *domain;

	daemon->holder = watch_free(daemon->holder);
	compiling_deinit(daemon);
	exports_deinit(&daemon->exports);
	keeping_deinit(daemon);
	reclaim_deinit(daemon);
	offender_deinit(daemon);
	events_deinit(daemon);
	userlog_deinit(daemon);
	daemon->desk->close(daemon);
	handouts_deinit(&daemon->handouts);
	daemon->stop_timer = timer_free(daemon->stop_timer);
	daemon->greeting = timer_free(daemon->greeting);
	overdue_deinit(&daemon->crew);
	while ((domain = TAILQ_FIRST(&daemon->domains))) {
		log_bug_on(!TAILQ_EMPTY(&domain->workers) || !TAILQ_EMPTY(&domain->sessions));
		domain_retire(domain);
	}
}

void daemon_adopted(struct daemon *daemon)
{
	struct session *session;
	struct domain *domain;

	if (!daemon->keeper)
		keeping_start(daemon);
	domain_prewarm(daemon);
	TAILQ_FOREACH (domain, &daemon->domains, link)
		domain_fill(domain);
	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (session->state == SESSION_SERVED)
			compiling_await(session);
	become_ready(daemon);
}
