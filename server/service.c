// See service.h.

#include "server/service.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <uv.h>

#include "protocol/cuda_abi.h"
#include "server/adopt/arrive.h"
#include "server/config/config.h"
#include "server/control/caller.h"
#include "server/control/checkpoint.h"
#include "server/daemon/children.h"
#include "server/daemon/depart.h"
#include "server/daemon/device_drain.h"
#include "server/daemon/keeping.h"
#include "server/daemon/life.h"
#include "server/daemon/requests.h"
#include "server/daemon/sink_make.h"
#include "server/daemon/witnesses.h"
#include "server/door/listener.h"
#include "server/door/visitor.h"
#include "server/fault/overdue.h"
#include "server/fault/promote.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/notify.h"
#include "server/loop/timer.h"
#include "server/loop/turn_end.h"
#include "server/loop/watch.h"
#include "server/daemon/compiling.h"
#include "server/session/changes.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/events.h"
#include "server/session/export.h"
#include "server/session/handout.h"
#include "server/session/fault_history.h"
#include "server/session/reclaim.h"
#include "server/session/session.h"
#include "server/session/userlog.h"
#include "server/standby/move.h"
#include "server/standby/swap.h"
#include "server/standby/warm.h"
#include "server/worker/worker.h"

/* Time that children have to end after Shutdown. */
#define LEAVE_MS 3000u

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

	if (worker->state != WORKER_TERMINATING)
		worker_post(worker, &message);
}

static void kill_worker(struct worker *worker)
{
	worker_terminate(worker, "it does not leave");
}

void daemon_leave(struct daemon *daemon)
{
	if (daemon->phase == DAEMON_LEAVES)
		return;
	daemon->phase = DAEMON_LEAVES;
	daemon->listener = listener_free(daemon->listener);
	witnesses_dismiss(daemon);
	sessions_end_all(
		daemon, NULL, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, "the service stops");
	while (!TAILQ_EMPTY(&daemon->visitors))
		visitor_free(TAILQ_FIRST(&daemon->visitors));
	while (!TAILQ_EMPTY(&daemon->operators))
		caller_dismiss(TAILQ_FIRST(&daemon->operators));
	for_all_workers(daemon, ask_to_leave);
	if (children_are_there(daemon))
		timer_start(daemon->stop_timer, LEAVE_MS);
	else
		uv_stop(daemon->loop);
}

static void on_stop_timer(void *context)
{
	struct daemon *daemon = context;

	if (daemon->phase == DAEMON_LEAVES)
		for_all_workers(daemon, kill_worker);
	else
		daemon_leave(daemon);
}

void daemon_stop(struct daemon *daemon)
{
	if (daemon->phase == DAEMON_LEAVES)
		return;
	if (daemon->phase == DAEMON_STOPS || TAILQ_EMPTY(&daemon->sessions) || !daemon->stop_seconds) {
		daemon_leave(daemon);
		return;
	}
	log_info("stopping: waits %llu s at most for %u programs (frmpsctl status lists them)",
		(unsigned long long)daemon->stop_seconds, daemon->session_count);
	notify_manager("STOPPING=1");
	/* The socket is closed last: operators can see and end the programs that the daemon waits
	 * for. */
	daemon->phase = DAEMON_STOPS;
	daemon->stop_until_us = timer_now_us() + daemon->stop_seconds * 1000000;
	timer_start(daemon->stop_timer, daemon->stop_seconds * 1000);
}

/*
 * The end of a turn
 */

static bool take(unsigned *due, unsigned one)
{
	bool is_due = *due & one;

	*due &= ~one;
	return is_due;
}

static void refuse_waiting(struct domain *domain)
{
	struct session *session = TAILQ_FIRST(&domain->sessions), *next;

	for (; session; session = next) {
		next = TAILQ_NEXT(session, domain_link);
		session_refuse(session, CUDA_ERROR_MPS_SERVER_NOT_READY, domain->start_error);
	}
}

/* Sends what waited for an executor. */
static void serve(struct domain *domain)
{
	struct session *session = TAILQ_FIRST(&domain->sessions), *next;

	/* Either step may end the session. */
	for (; session; session = next) {
		next = TAILQ_NEXT(session, domain_link);
		if (session->state == SESSION_OPENING)
			session_open(session);
		else if (session->request)
			request_advance(session->request);
	}
	depart_look_into(domain);
	move_look_into(domain);
	swap_look_into(domain);
}

static void settle_domain(struct domain *domain)
{
	if (take(&domain->due, DOMAIN_DUE_TROUBLE)) {
		swap_call_off(domain);
		warm_hurry(domain);
	}
	if (take(&domain->due, DOMAIN_DUE_REFUSE))
		refuse_waiting(domain);
	if (take(&domain->due, DOMAIN_DUE_SERVE))
		serve(domain);
	if (take(&domain->due, DOMAIN_DUE_END) && domain_is_over(domain))
		domain_free(domain);
}

static void settle_domains(struct daemon *daemon)
{
	struct domain *domain = TAILQ_FIRST(&daemon->domains);

	while (domain) {
		if (!domain->due) {
			domain = TAILQ_NEXT(domain, link);
			continue;
		}
		settle_domain(domain);
		domain = TAILQ_FIRST(&daemon->domains);
	}
}

static void settle_session(struct session *session)
{
	session_ref(session);
	if (take(&session->due, SESSION_DUE_ABANDON))
		checkpoint_abandon(session);
	if (take(&session->due, SESSION_DUE_REJECT))
		session_reject(session, "its session cannot be served");
	if (take(&session->due, SESSION_DUE_GO_ON) && session->request)
		request_advance(session->request);
	session_unref(session);
}

static void settle_sessions(struct daemon *daemon)
{
	struct session *session = TAILQ_FIRST(&daemon->sessions);

	while (session) {
		if (!session->due) {
			session = TAILQ_NEXT(session, link);
			continue;
		}
		settle_session(session);
		session = TAILQ_FIRST(&daemon->sessions);
	}
}

static void retry_for_memory(struct daemon *daemon)
{
	requests_retry(daemon);
	sink_retry(daemon);
	swap_retry(daemon);
}

/* Return: false if nothing was due */
static bool settle_one(struct daemon *daemon)
{
	if (daemon->crew.is_due)
		children_settle(daemon);
	else if (take(&daemon->due, DAEMON_DUE_DOMAINS))
		settle_domains(daemon);
	else if (take(&daemon->due, DAEMON_DUE_SESSIONS))
		settle_sessions(daemon);
	else if (take(&daemon->due, DAEMON_DUE_MEMORY))
		retry_for_memory(daemon);
	else if (take(&daemon->due, DAEMON_DUE_DEPARTURE))
		depart_hurry(daemon);
	else if (take(&daemon->due, DAEMON_DUE_STOP))
		daemon_stop(daemon);
	else if (take(&daemon->due, DAEMON_DUE_LEAVE))
		daemon_leave(daemon);
	else
		return false;
	return true;
}

/* Does everything that is due. */
static void settle(void *context)
{
	struct daemon *daemon = context;

	do {
		while (settle_one(daemon))
			;
		if (daemon->phase == DAEMON_STOPS && TAILQ_EMPTY(&daemon->sessions))
			daemon_leave(daemon);
	} while (daemon->due || daemon->crew.is_due);
	if (daemon->phase == DAEMON_LEAVES && !children_are_there(daemon))
		uv_stop(daemon->loop);
}

static void record(void *context)
{
	struct daemon *daemon = context;
	struct domain *domain;

	changes_save(daemon);
	store_commit(daemon->store);
	TAILQ_FOREACH (domain, &daemon->domains, link)
		promote_recorded(domain);
	/* A daemon that finds a child dead must know why. */
	workers_kill(&daemon->crew);
}

static void go_on(struct session *session)
{
	enum session_answer answer = session->answer;

	session->answer = SESSION_ANSWER_NONE;
	if (answer == SESSION_ANSWER_WELCOME)
		session_welcomed(session);
	else if (answer == SESSION_ANSWER_REPLY)
		request_answered(session);
}

static bool answered(void *context)
{
	struct daemon *daemon = context;
	struct session *session, *next;

	if (!daemon->has_answers)
		return false;
	daemon->has_answers = false;
	session = TAILQ_FIRST(&daemon->sessions);
	if (session)
		session_ref(session);
	/* Each step may end sessions. */
	for (; session; session = next) {
		go_on(session);
		next = TAILQ_NEXT(session, link);
		if (next)
			session_ref(next);
		session_unref(session);
	}
	return true;
}

static const struct turn_end_steps turn_end_steps = {
	.change = settle, .record = record, .answered = answered};

/*
 * Start
 */

void daemon_init(struct daemon *daemon, struct uv_loop_s *loop, const struct config *config,
	const struct heritage *heritage, const struct spawner *spawner, struct store *store)
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
		.on_message = children_message,
		.on_closed = children_closed,
		.store = store};
	TAILQ_INIT(&daemon->crew.workers);
	daemon->accept = visitor_new;
	daemon->arrive = arrive_begin;
	TAILQ_INIT(&daemon->domains);
	TAILQ_INIT(&daemon->sessions);
	TAILQ_INIT(&daemon->visitors);
	TAILQ_INIT(&daemon->operators);
	reclaim_init(daemon);
	userlog_init(daemon);
	callers_init(daemon);
	handouts_init(&daemon->handouts, loop);
	exports_init(&daemon->exports, loop);
	TAILQ_INIT(&daemon->fault_histories);
	events_init(daemon);
	daemon->started_us = timer_now_us();
	daemon->fds_max = getrlimit(RLIMIT_NOFILE, &files) < 0 ? 1024 : files.rlim_cur;
	daemon->records_max = STORE_BYTES;
	daemon->stop_timer = timer_new(loop, on_stop_timer, daemon);
	daemon->greeting = timer_new(loop, visitor_take_turn, daemon);
	daemon->turn_end = turn_end_new(loop, &turn_end_steps, daemon);
	log_bug_on(!daemon->turn_end);
	overdue_init(&daemon->crew);
	keeping_init(daemon);
	device_drain_init(daemon);
	compiling_init(daemon);
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
	arrive_deinit(daemon);
	depart_deinit(daemon);
	compiling_deinit(daemon);
	exports_deinit(&daemon->exports);
	keeping_deinit(daemon);
	device_drain_deinit(daemon);
	reclaim_deinit(daemon);
	fault_history_deinit(daemon);
	events_deinit(daemon);
	userlog_deinit(daemon);
	callers_deinit(daemon);
	handouts_deinit(&daemon->handouts);
	daemon->stop_timer = timer_free(daemon->stop_timer);
	daemon->greeting = timer_free(daemon->greeting);
	daemon->turn_end = turn_end_free(daemon->turn_end);
	overdue_deinit(&daemon->crew);
	while ((domain = TAILQ_FIRST(&daemon->domains))) {
		log_bug_on(!TAILQ_EMPTY(&domain->workers) || !TAILQ_EMPTY(&domain->sessions));
		domain_free(domain);
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
	children_look_ready(daemon);
	device_drain_go_on(daemon);
}
