// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The daemon: start, events of workers, stop. See daemon.h for the states.

#include "server/session/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "protocol/cuda_abi.h"
#include "server/adopt/adopt.h"
#include "server/adopt/holder.h"
#include "server/adopt/records.h"
#include "server/adopt/store.h"
#include "server/config/config.h"
#include "server/control/operator.h"
#include "server/failover/convict.h"
#include "server/failover/dumps.h"
#include "server/failover/kernel_log.h"
#include "server/failover/nvml.h"
#include "server/failover/promote.h"
#include "server/failover/supervise.h"
#include "server/failover/verdict.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/notify.h"
#include "server/loop/timer.h"
#include "server/loop/watch.h"
#include "server/session/domain.h"
#include "server/session/listener.h"
#include "server/session/offender.h"
#include "server/session/client.h"
#include "server/session/visitor.h"

/* How long children may take to leave when they are asked to. */
#define LEAVE_MS	  3000u
#define KEEPER_RETRY_MS	  1000u
#define KEEPER_RETRY_MOST 60000u
/* What NVML says so long after something else is about the same fault. */
#define KNOWN_US UINT64_C(2000000)

static void leave(struct daemon *daemon);

/*
 * Keeper
 */

static void start_keeper(struct daemon *daemon)
{
	int r;

	daemon->keeper_number++;
	r = worker_start(daemon, NULL, ROLE_KEEPER, &daemon->keeper);
	if (r < 0) {
		daemon->keeper_number--;
		daemon->keeper = NULL;
		log_error("the keeper cannot be started: %s", strerror(-r));
		timer_start(daemon->keeper_timer, KEEPER_RETRY_MOST);
	}
}

static void on_keeper_timer(void *context)
{
	struct daemon *daemon = context;

	if (!daemon->keeper && !daemon->leaving)
		start_keeper(daemon);
}

/* All device memory went with the keeper: there is nothing to move sessions to. */
static void end_everything(struct daemon *daemon)
{
	struct client *client = TAILQ_FIRST(&daemon->clients), *next;
	struct domain *domain, *next_domain;

	for (; client; client = next) {
		next = TAILQ_NEXT(client, link);
		client_finish(client, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_RPC_FAILURE,
			"the service lost the process that keeps the device memory");
		client_end(client, 0);
	}
	for (domain = TAILQ_FIRST(&daemon->domains); domain; domain = next_domain) {
		next_domain = TAILQ_NEXT(domain, link);
		domain_retire(domain);
	}
}

void daemon_prewarm(struct daemon *daemon)
{
	struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (!domain->retiring)
			return;
	domain = domain_new(daemon);
	if (domain)
		domain_fill(domain);
}

static void keeper_gone(struct daemon *daemon, const struct worker *keeper)
{
	uint64_t delay = KEEPER_RETRY_MS << (daemon->keeper_failures < 6 ? daemon->keeper_failures : 6);
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
		start_keeper(daemon);
		daemon_prewarm(daemon);
	} else {
		timer_start(daemon->keeper_timer, delay < KEEPER_RETRY_MOST ? delay : KEEPER_RETRY_MOST);
	}
}

/*
 * Witnesses
 */

/* Every executor that has something on the device may be meant. */
static void on_hint(struct daemon *daemon, const struct xid *xid)
{
	struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->active && convict_has_work(domain, domain->active))
			worker_hint(domain->active, xid);
}

/* The kernel log says more, and earlier; and an executor that is ended for its fault makes the driver speak
 * once more.
 */
static void on_nvml(void *context, const struct xid *xid)
{
	struct daemon *daemon = context;
	uint64_t known_us =
		daemon->logged_us > daemon->hint_solved_us ? daemon->logged_us : daemon->hint_solved_us;
	bool known = known_us && timer_now_us() - known_us < KNOWN_US;

	log_info("%s%s", xid->text, known ? ": nothing new" : ": some process on the device has a fault");
	if (!known)
		on_hint(daemon, xid);
}

static void follow_nvml(struct daemon *daemon)
{
	/* The last executors may say that they are ready on their way out. */
	if (!daemon->nvml && !daemon->leaving)
		daemon->nvml = nvml_new(
			daemon->loop, daemon->heritage->backend, daemon->device.uuid, on_nvml, daemon);
}

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
}

static void become_ready(struct daemon *daemon)
{
	if (daemon->ready || !daemon->device_known || !daemon->keeper || daemon->keeper->state != WORKER_WARM)
		return;
	daemon->ready = true;
	daemon_keep(daemon);
	log_info("ready: %s backend, %s, driver %d, socket %s", daemon->heritage->backend,
		daemon->device.name, daemon->device.driver_version, daemon->config->socket);
	notify_manager("READY=1");
}

void daemon_worker_ready(struct worker *worker, const struct wire_ready *ready)
{
	struct daemon *daemon = worker->daemon;

	worker->was_ready = true;
	if (worker->role == ROLE_KEEPER) {
		worker->state = WORKER_WARM;
		daemon->keeper_failures = 0;
		reclaim_retry(daemon);
	} else {
		copy_device(&daemon->device, ready);
		daemon->device_known = true;
		follow_nvml(daemon);
		store_put_single(daemon->store, RECORD_DEVICE, &daemon->device, sizeof(daemon->device));
		domain_worker_ready(worker->domain, worker);
	}
	become_ready(daemon);
}

struct client *daemon_find_client(const struct daemon *daemon, uint64_t number)
{
	struct client *client;

	TAILQ_FOREACH (client, &daemon->clients, link)
		if (client->number == number)
			break;
	return client;
}

struct domain *daemon_find_domain(const struct daemon *daemon, uint32_t number)
{
	struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->number == number)
			break;
	return domain;
}

void daemon_worker_offence(struct worker *worker, uint64_t number, const char *reason)
{
	struct client *client = daemon_find_client(worker->daemon, number);

	if (client && client->domain == worker->domain)
		client_reject(client, reason);
}

/* The executor has told the culprit. */
void daemon_worker_stray(struct worker *worker, uint64_t owner, const struct wire_stray *stray)
{
	struct counters *counters = &worker->daemon->counters;

	if (stray->culprit)
		counters->guard_hits++;
	else
		counters->guard_hits_unproved++;
	if (worker->domain)
		verdict_stray(worker->domain, owner, stray);
}

void daemon_worker_condemned(struct worker *worker)
{
	if (worker->domain)
		promote_detect(worker->domain, worker);
}

static bool has_workers(const struct daemon *daemon)
{
	const struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (!TAILQ_EMPTY(&domain->workers))
			return true;
	return daemon->keeper != NULL;
}

void daemon_worker_gone(struct worker *worker)
{
	struct daemon *daemon = worker->daemon;
	struct domain *domain = worker->domain;
	char text[400];

	if (!domain && daemon->leaving)
		daemon->keeper = NULL;
	else if (!domain)
		keeper_gone(daemon, worker);
	else
		domain_worker_gone(domain, worker);
	if (domain && !worker->was_ready && !daemon->ready && !daemon->leaving) {
		snprintf(text, sizeof(text), "no executor can start: %s",
			worker->lost_text[0] ? worker->lost_text : "it ended (its messages are above)");
		daemon_fail(daemon, text);
	}
	if (daemon->leaving && !has_workers(daemon))
		uv_stop(daemon->loop);
}

/*
 * Sessions
 */

static struct domain *find_domain(const struct daemon *daemon, uid_t uid, bool alone)
{
	struct domain *domain, *nobodys = NULL;

	TAILQ_FOREACH (domain, &daemon->domains, link) {
		if (domain->retiring)
			continue;
		if (domain->assigned && domain->uid == uid && !domain->alone && !alone)
			return domain;
		if (!domain->assigned)
			nobodys = domain;
	}
	return nobodys;
}

struct domain *daemon_domain_of(struct daemon *daemon, uid_t uid, const char *alone)
{
	struct domain *domain = find_domain(daemon, uid, alone), *other;

	if (!domain)
		domain = domain_new(daemon);
	if (!domain)
		return NULL;
	if (domain->assigned)
		return domain;
	domain->assigned = true;
	domain->alone = alone;
	snprintf(domain->reason, sizeof(domain->reason), "%s", alone ? alone : "");
	domain->uid = uid;
	domain_keep(domain);
	domain_fill(domain);
	TAILQ_FOREACH (other, &daemon->domains, link)
		domain_watch_idle(other);
	return domain;
}

void daemon_session_gone(struct daemon *daemon)
{
	if (daemon->draining && !daemon->leaving && TAILQ_EMPTY(&daemon->clients))
		leave(daemon);
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
	worker_condemn(worker, "does not leave");
}

static void close_sessions(struct daemon *daemon)
{
	struct client *client = TAILQ_FIRST(&daemon->clients), *next;

	for (; client; client = next) {
		next = TAILQ_NEXT(client, link);
		client_refuse(client, CUDA_ERROR_MPS_SERVER_NOT_READY, "the service stops");
		client_finish(
			client, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, "the service stops");
		client_end(client, 0);
	}
}

static void leave(struct daemon *daemon)
{
	if (daemon->leaving)
		return;
	daemon->draining = daemon->leaving = true;
	daemon->listener = listener_free(daemon->listener);
	daemon->kernel_log = kernel_log_free(daemon->kernel_log);
	daemon->nvml = nvml_free(daemon->nvml);
	close_sessions(daemon);
	while (!TAILQ_EMPTY(&daemon->visitors))
		visitor_free(TAILQ_FIRST(&daemon->visitors));
	while (!TAILQ_EMPTY(&daemon->operators))
		operator_free(TAILQ_FIRST(&daemon->operators));
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
		leave(daemon);
}

void daemon_stop(struct daemon *daemon)
{
	if (daemon->leaving)
		return;
	if (daemon->draining || TAILQ_EMPTY(&daemon->clients) || !daemon->config->stop_seconds) {
		leave(daemon);
		return;
	}
	log_info("stopping: %u clients have %llu s to finish", daemon->client_count,
		(unsigned long long)daemon->config->stop_seconds);
	notify_manager("STOPPING=1");
	daemon->draining = true;
	daemon->listener = listener_free(daemon->listener);
	timer_start(daemon->stop_timer, daemon->config->stop_seconds * 1000);
}

void daemon_fail(struct daemon *daemon, const char *reason)
{
	if (daemon->leaving)
		return;
	log_error("%s", reason);
	daemon->exit_code = 1;
	leave(daemon);
}

/*
 * Start
 */

static void on_dump(void *context, int id)
{
	struct daemon *daemon = context;
	struct domain *domain;
	struct worker *worker, *found = NULL;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			if (worker->dump_watch == id)
				found = worker;
	if (found)
		worker_dump_written(found);
}

void daemon_init(struct daemon *daemon, struct uv_loop_s *loop, const struct config *config,
	const struct heritage *heritage, const struct spawner *spawner)
{
	struct rlimit files;

	memset(daemon, 0, sizeof(*daemon));
	daemon->loop = loop;
	daemon->config = config;
	daemon->heritage = heritage;
	daemon->spawner = spawner;
	TAILQ_INIT(&daemon->domains);
	TAILQ_INIT(&daemon->clients);
	TAILQ_INIT(&daemon->visitors);
	TAILQ_INIT(&daemon->operators);
	reclaim_init(&daemon->reclaim);
	TAILQ_INIT(&daemon->offenders);
	daemon->started_us = timer_now_us();
	daemon->fds_max = getrlimit(RLIMIT_NOFILE, &files) < 0 ? 1024 : files.rlim_cur;
	daemon->keeper_timer = timer_new(loop, on_keeper_timer, daemon);
	daemon->stop_timer = timer_new(loop, on_stop_timer, daemon);
	log_bug_on(!daemon->keeper_timer || !daemon->stop_timer);
	daemon->dumps = dumps_new(loop, on_dump, daemon);
}

int daemon_start(struct daemon *daemon)
{
	start_keeper(daemon);
	if (!daemon->keeper)
		return -EAGAIN;
	daemon_prewarm(daemon);
	return 0;
}

void daemon_deinit(struct daemon *daemon)
{
	struct domain *domain;

	daemon->holder = watch_free(daemon->holder);
	daemon->dumps = dumps_free(daemon->dumps);
	offender_forget_all(daemon);
	daemon->keeper_timer = timer_free(daemon->keeper_timer);
	daemon->stop_timer = timer_free(daemon->stop_timer);
	while ((domain = TAILQ_FIRST(&daemon->domains))) {
		log_bug_on(!TAILQ_EMPTY(&domain->workers) || !TAILQ_EMPTY(&domain->clients));
		domain_retire(domain);
	}
}

void daemon_adopted(struct daemon *daemon)
{
	struct domain *domain;

	if (!daemon->keeper)
		start_keeper(daemon);
	daemon_prewarm(daemon);
	TAILQ_FOREACH (domain, &daemon->domains, link)
		domain_fill(domain);
	become_ready(daemon);
}

void daemon_keep(struct daemon *daemon)
{
	struct kept_service kept = {.next_session = daemon->next_session,
		.started_us = daemon->started_us,
		.next_worker = daemon->next_worker,
		.next_domain = daemon->next_domain,
		.keeper_number = daemon->keeper_number,
		.epoch = daemon->epoch,
		.ready = daemon->ready,
		.counters = daemon->counters};

	if (daemon->listener)
		listener_keys(daemon->listener, &kept.listener, &kept.listener_lock);
	daemon->record = store_put(daemon->store, daemon->record, RECORD_SERVICE, 0, &kept, sizeof(kept));
}

/* What the holder has to say. */
static void on_holder(void *context)
{
	struct daemon *daemon = context;
	enum store_event event;
	int status;
	pid_t pid;

	while ((event = store_hear(daemon->store, &pid, &status)) != STORE_NOTHING) {
		if (event == STORE_STOP)
			daemon_stop(daemon);
		else if (event == STORE_SYNCED)
			reclaim_done(daemon);
		else
			supervise_ended(daemon, pid, status);
	}
}

/* Counters are for operators: those of the latest moment may be lost. */
static void on_turn(uv_prepare_t *handle)
{
	daemon_keep(handle->data);
}

static void on_xid(void *context, const struct xid *xid)
{
	struct daemon *daemon = context;
	struct domain *domain;
	struct worker *worker;

	daemon->logged_us = timer_now_us();
	if (!xid->pid) {
		on_hint(daemon, xid);
		return;
	}
	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			if (worker->pid == xid->pid)
				worker_testify(worker, xid);
	/* Whoever it was, the others are not meant. */
	if (kernel_log_is_proof(xid))
		daemon->hint_solved_us = timer_now_us();
}

/* Only the real driver writes there. */
static void follow_kernel_log(struct daemon *daemon)
{
	if (strcmp(daemon->heritage->backend, backend_cuda.name) == 0)
		daemon->kernel_log = kernel_log_new(daemon->loop, on_xid, daemon);
}

static int start_listening(struct daemon *daemon)
{
	char text[400] = "";
	int r = listener_new(daemon, daemon->config->socket, &daemon->listener, text, sizeof(text));

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

static void stop_as_told(struct daemon *daemon, const struct legacy *legacy)
{
	for (unsigned i = 0; i < legacy->stops; i++)
		daemon_stop(daemon);
}

static void run(struct daemon *daemon, const struct legacy *legacy)
{
	uv_prepare_t turn;

	uv_prepare_init(daemon->loop, &turn);
	turn.data = daemon;
	uv_prepare_start(&turn, on_turn);
	uv_unref((uv_handle_t *)&turn);
	if (start(daemon, legacy)) {
		daemon->exit_code = 1;
		leave(daemon);
	} else {
		follow_kernel_log(daemon);
		if (daemon->device_known)
			follow_nvml(daemon);
		store_up(daemon->store);
		stop_as_told(daemon, legacy);
	}
	if (has_workers(daemon))
		uv_run(daemon->loop, UV_RUN_DEFAULT);
	daemon_deinit(daemon);
	uv_close((uv_handle_t *)&turn, NULL);
	uv_run(daemon->loop, UV_RUN_DEFAULT);
}

int daemon_main(const struct config *config, const struct heritage *heritage, const struct legacy *legacy)
{
	struct store *store = store_open(legacy);
	struct daemon daemon;
	uv_loop_t loop;

	if (!store)
		return 1;
	signal(SIGPIPE, SIG_IGN);
	uv_loop_init(&loop);
	daemon_init(&daemon, &loop, config, heritage, &supervise_spawner);
	daemon.store = store;
	daemon.holder = watch_new(&loop, dup(store_socket(store)), on_holder, &daemon);
	log_bug_on(!daemon.holder);
	run(&daemon, legacy);
	uv_loop_close(&loop);
	store_close(store);
	log_info("stopped");
	return daemon.exit_code;
}
