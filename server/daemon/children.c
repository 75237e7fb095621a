// See children.h.

#include "server/daemon/children.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>

#include "protocol/cuda_abi.h"
#include "protocol/place.h"
#include "server/backend/backend.h"
#include "server/config/config.h"
#include "server/daemon/device.h"
#include "server/daemon/keeping.h"
#include "server/daemon/life.h"
#include "server/daemon/witnesses.h"
#include "server/fault/evidence.h"
#include "server/fault/overdue.h"
#include "server/fault/promote.h"
#include "server/fault/verdict.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/notify.h"
#include "server/loop/timer.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/events.h"
#include "server/session/guarantee.h"
#include "server/session/session.h"
#include "server/standby/leave_out.h"
#include "server/standby/move.h"
#include "server/standby/swap.h"
#include "server/standby/warm.h"
#include "server/worker/supervise.h"
#include "server/worker/words.h"
#include "server/worker/worker.h"

/*
 * Ready
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
	device->sm_granule = from->sm_granule;
	device->sm_units = from->sm_units;
}

void children_look_ready(struct daemon *daemon)
{
	char text[300], path[PLACE_BYTES];

	if (daemon->phase != DAEMON_STARTS || daemon_ends(daemon) || !daemon->device_known ||
		!daemon->keeper || daemon->keeper->state != WORKER_WARM)
		return;
	/* The service would refuse every program. */
	if (guarantee_refuses_rules(daemon, &daemon->rules, text, sizeof(text))) {
		daemon_fail(daemon, text);
		daemon->exit_code = EX_CONFIG;
		return;
	}
	daemon->phase = DAEMON_SERVES;
	daemon_socket(daemon, path);
	log_info("ready: %s backend, %s, driver %d, socket %s", daemon->heritage->backend,
		daemon->device.name, daemon->device.driver_version, path);
	if (notify_manager("READY=1"))
		log_error("the service manager cannot be told that the service is ready");
}

static void take_ready(struct worker *worker, const struct wire_ready *ready)
{
	struct daemon *daemon = worker->daemon;

	/* A message that a dead daemon has dealt with may be here once more. */
	if (worker->state != WORKER_STARTING)
		return;
	worker->contains = ready->contains;
	worker->was_ready = true;
	if (worker->role == ROLE_KEEPER) {
		keeping_ready(daemon);
	} else {
		/* Later reports may be under the influence of a user's programs. */
		if (!daemon->device_known)
			copy_device(&daemon->device, ready);
		daemon->device_known = true;
		timer_start(daemon->greeting, 0);
		witnesses_follow_device(daemon);
		store_put_single(daemon->store, RECORD_DEVICE, &daemon->device, sizeof(daemon->device));
		overdue_came_up(&daemon->crew);
		warm_start(worker);
		domain_fill_all(worker->domain);
	}
	children_look_ready(daemon);
	worker_changed(worker);
}

/*
 * Other messages
 */

static void take_offence(struct worker *worker, uint64_t number, const char *reason)
{
	struct session *session = daemon_find_session(worker->daemon, number);

	if (session && session->domain == worker->domain)
		session_reject(session, reason);
}

/* An executor that can be halted lives on for a while, any other worker is terminated, unless the
 * device is the cause. */
static void take_lost(struct worker *worker)
{
	if (worker->domain)
		evidence_take_lost(worker);
	if (!device_take_lost(worker) &&
		!(worker->domain && promote_sign(worker->domain, worker, worker->lost_text)))
		worker_terminate(worker, "it lost its context");
}

static bool take_due(struct worker *worker, enum worker_due due)
{
	bool is_due = worker->due & due;

	worker->due &= ~(unsigned)due;
	return is_due;
}

static void record_trouble(struct worker *worker)
{
	if (worker->domain)
		domain_all_changed(worker->domain);
	else
		worker_changed(worker);
}

static void settle_loss(struct worker *worker)
{
	if (!take_due(worker, WORKER_DUE_LOST))
		return;
	take_lost(worker);
	record_trouble(worker);
}

/* Some messages only an executor may send. */
static bool is_its_to_send(const struct worker *worker, enum wire_type type)
{
	switch (type) {
	case WIRE_SUSPECT:
	case WIRE_FAULT:
	case WIRE_GUARD_HIT:
	case WIRE_OFFENCE:
	case WIRE_WANTED:
		return worker->domain;
	default:
		return true;
	}
}

static void take_one(struct worker *worker, const struct wire_message *message, struct packet *packet)
{
	const struct wire_trouble *trouble = &message->trouble;

	switch (message->type) {
	case WIRE_REPLY:
		if (worker_take_reply(worker, message, packet) == WORKER_REPLY_UNCLAIMED)
			children_take_unclaimed(worker, &message->reply);
		break;
	case WIRE_READY:
		take_ready(worker, &message->ready);
		break;
	case WIRE_LOST:
		worker_take_lost(worker, trouble->code, trouble->text);
		/* Before the message leaves the socket. */
		settle_loss(worker);
		break;
	case WIRE_SUSPECT:
		promote_sign(worker->domain, worker, trouble->text);
		record_trouble(worker);
		break;
	case WIRE_FAULT:
		promote_contained(worker->domain, worker, message->session, trouble);
		record_trouble(worker);
		break;
	case WIRE_GUARD_HIT:
		worker->daemon->counters.guard_hits++;
		verdict_guard_hit(worker->domain, message->session, message->guard_hit.text);
		break;
	case WIRE_OFFENCE:
		take_offence(worker, message->session, trouble->text);
		break;
	case WIRE_WANTED:
		swap_take_wanted(worker, message->session);
		break;
	default:
		worker_terminate(worker, "it sent a message that it may not send");
		break;
	}
}

void children_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct worker *worker = context;

	if (!is_its_to_send(worker, message->type)) {
		worker_terminate(worker, "it sent a message that it may not send");
		return;
	}
	take_one(worker, message, packet);
	/* Nobody asks an executor for descriptors. */
	if (packet->fd_count && worker->role == ROLE_EXECUTOR)
		worker_terminate(worker, "it sent a descriptor");
}

/* A child that was asked to leave hangs up before its end; the stop timer ends a child that
 * stays. */
void children_closed(void *context, const char *reason)
{
	struct worker *worker = context;
	char text[128];

	snprintf(text, sizeof(text), "its connection is over: %s", reason);
	if (worker->daemon->phase != DAEMON_LEAVES)
		worker_terminate(worker, text);
}

/*
 * What is due
 */

static void note_terminated(struct worker *worker)
{
	const struct event_about about = events_about_user(worker->domain);

	if (worker->daemon->phase == DAEMON_LEAVES || daemon_is_drained(worker->daemon) ||
		(worker->domain && worker->domain->life == DOMAIN_RETIRES))
		log_debug("%s", worker->end_text);
	else
		events_note(worker->daemon, EVENT_lost, LOG_LEVEL_WARNING, &about, "%s", worker->end_text);
	if (worker->domain)
		promote_detect(worker->domain, worker);
}

/* May free the worker. */
static void settle(struct worker *worker)
{
	settle_loss(worker);
	if (take_due(worker, WORKER_DUE_TERMINATED))
		note_terminated(worker);
	if (take_due(worker, WORKER_DUE_STAYS) && device_take_stay(worker))
		children_ended(worker, 0, SIGKILL);
}

static struct worker *find_due(const struct crew *crew)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &crew->workers, crew_link)
		if (worker->due)
			break;
	return worker;
}

void children_settle(struct daemon *daemon)
{
	struct worker *worker;

	while (daemon->crew.is_due) {
		worker = find_due(&daemon->crew);
		if (worker)
			settle(worker);
		else
			daemon->crew.is_due = false;
	}
}

/*
 * The end
 */

bool children_are_there(const struct daemon *daemon)
{
	const struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (!TAILQ_EMPTY(&domain->workers))
			return true;
	return daemon->keeper != NULL;
}

/* True if the next executor is likely to fail as well: at its start, or while it gets the sessions.
 * The daemon kills an executor in that phase only for reasons that have to do with neither. */
static bool has_failed(const struct worker *worker)
{
	return !worker->was_ready || (!worker->was_warm && worker->exit_signal != SIGKILL);
}

/* True if an executor had no device memory for its context, programs wait for the executor, and
 * others make room (memory_policy = swap). */
static bool awaits_room(struct domain *domain, const struct worker *worker)
{
	struct session *session = TAILQ_FIRST(&domain->sessions);
	uint64_t now_us = timer_now_us(), wait_ms;

	if (worker->lost_code != CUDA_ERROR_OUT_OF_MEMORY || domain->active || !session)
		return false;
	if (!domain->start_short_us)
		domain->start_short_us = now_us;
	wait_ms = swap_make_room(session, GUARANTEE_EXECUTOR_BYTES, domain->start_short_us);
	if (wait_ms)
		timer_start(domain->respawn, wait_ms + DOMAIN_RESPAWN_MS);
	return wait_ms;
}

/* A move that was on its way to this executor looks for the next executor first. */
static void executor_gone(struct domain *domain, struct worker *worker)
{
	struct daemon *daemon = domain->daemon;
	char reason[400];

	TAILQ_REMOVE(&domain->workers, worker, link);
	if (has_failed(worker) && domain_may_have_executors(domain) && !awaits_room(domain, worker)) {
		worker_describe_end(worker, reason, sizeof(reason));
		domain_start_failed(domain, reason);
	}
	move_lost(domain, worker);
	leave_out_judge(domain, worker);
	promote_fenced(domain, worker);
	evidence_drop(worker);
	domain_all_changed(domain);
	domain_fill_all(domain);
	due_domain(domain, DOMAIN_DUE_END);
	/* The device is known from an executor that started: this one is replaced. */
	if (!worker->was_ready && !daemon->device_known && daemon->phase != DAEMON_LEAVES) {
		snprintf(reason, sizeof(reason), "no executor can start: %s",
			worker->lost_text[0] ? worker->lost_text : "it ended (its messages are above)");
		daemon_fail(daemon, reason);
	}
}

static void keeper_gone(struct daemon *daemon, const struct worker *keeper)
{
	char text[400];

	if (daemon->phase == DAEMON_LEAVES)
		daemon->keeper = NULL;
	else if (!keeping_gone(daemon, keeper, text, sizeof(text)))
		daemon_fail(daemon, text);
}

void children_ended(struct worker *worker, int exit_status, int exit_signal)
{
	struct daemon *daemon = worker->daemon;
	bool gave_back;

	/* The worker's last packets may be unread: Lost, an answer that was on its way. */
	connection_drain(worker->connection);
	settle(worker);
	worker_end(worker, exit_status, exit_signal);
	if (worker->domain)
		executor_gone(worker->domain, worker);
	else
		keeper_gone(daemon, worker);
	gave_back = worker->gives_back;
	worker_free(worker);
	if (gave_back)
		due_daemon(daemon, DAEMON_DUE_MEMORY);
}

static struct worker *find_worker(const struct crew *crew, pid_t pid)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &crew->workers, crew_link)
		if (worker->pid == pid)
			break;
	return worker;
}

void children_reaped(struct crew *crew, pid_t pid, int status)
{
	struct worker *worker = find_worker(crew, pid);
	int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	if (worker) {
		log_event(words_is_crash(number) ? LOG_LEVEL_WARNING : LOG_LEVEL_DEBUG,
			"%s %d is reaped (status %d, signal %d)%s", role_name(worker->role), (int)pid,
			WEXITSTATUS(status), number, supervise_killed(worker) ? ", it was killed" : "");
		supervise_forget(worker);
		children_ended(worker, number ? 0 : WEXITSTATUS(status), number);
	}
	store_settle(crew->store);
}
