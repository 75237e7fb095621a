// Domains: how many executors, and what happens to sessions when there is an active one (again).
// The state machine of the active executor is fault/promote.c.

#include "server/session/domain.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/holder/store.h"
#include "server/identity.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/due.h"
#include "server/session/fault_history.h"
#include "server/session/guarantee.h"
#include "server/session/owner.h"
#include "server/session/saved.h"
#include "server/role.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/worker/reap.h"
#include "server/worker/worker.h"

#define RESPAWN_MOST_MS 60000u

static void on_respawn(void *context)
{
	domain_fill(context);
}

static uint64_t idle_ms(const struct domain *domain)
{
	return domain->daemon->config->domain_idle_seconds * 1000;
}

/* True if the domain may end while nobody uses it. */
static bool is_idle(const struct domain *domain)
{
	return domain->use != DOMAIN_NOBODYS && domain->life != DOMAIN_RETIRES &&
	       domain->daemon->phase != DAEMON_LEAVES && !domain->arrival && TAILQ_EMPTY(&domain->sessions);
}

static void on_idle(void *context)
{
	struct domain *domain = context, *other;
	struct daemon *daemon = domain->daemon;
	bool others = false;

	if (!is_idle(domain))
		return;
	if (domain_is_alone(domain) || domain->life == DOMAIN_DISMISSED) {
		domain_retire(domain);
		domain_prewarm(daemon);
		return;
	}
	TAILQ_FOREACH (other, &domain->daemon->domains, link) {
		if (other == domain || other->life == DOMAIN_RETIRES)
			continue;
		others = true;
		if (!domain_serving(other))
			continue;
		log_info("uid %lld has had no programs for %llu s: its executors are shut down",
			(long long)domain->identity.uid,
			(unsigned long long)domain->daemon->config->domain_idle_seconds);
		domain_retire(domain);
		return;
	}
	/* Another look follows; without other domains the domain stays until another is added. */
	if (others)
		timer_start(domain->idle, idle_ms(domain));
}

void domain_watch_idle(struct domain *domain)
{
	if (!is_idle(domain))
		timer_stop(domain->idle);
	else if (domain_is_alone(domain) || domain->life == DOMAIN_DISMISSED)
		timer_start(domain->idle, 0);
	else if (idle_ms(domain) && !timer_running(domain->idle))
		timer_start(domain->idle, idle_ms(domain));
}

void domain_changed(struct domain *domain)
{
	domain->is_changed = domain->daemon->has_changes = true;
}

void domain_save(struct domain *domain)
{
	const size_t bytes = sizeof(struct domain_record) + saved_write(domain, NULL);
	struct domain_record *record = calloc(1, bytes);

	log_bug_on(!record);
	record->active = domain->active ? domain->active->number : 0;
	memcpy(record->head, domain, sizeof(record->head));
	saved_write(domain, record + 1);
	domain->record = store_put(
		domain->daemon->store, domain->record, RECORD_DOMAIN, domain->number, record, bytes);
	free(record);
}

void domain_all_changed(struct domain *domain)
{
	struct worker *worker;
	struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		session_changed(session);
	TAILQ_FOREACH (worker, &domain->workers, link)
		worker_changed(worker);
	domain_changed(domain);
}

static struct domain *new_domain(struct daemon *daemon)
{
	struct domain *domain = domain_new_numbered(daemon, daemon->next_domain + 1);

	if (!domain)
		return NULL;
	daemon->next_domain++;
	return domain;
}

struct domain *domain_new_alone(const struct domain *of)
{
	struct domain *domain = new_domain(of->daemon);

	if (!domain)
		return NULL;
	domain->use = DOMAIN_ALONE;
	domain->identity = of->identity;
	/* A session's generations only grow. */
	domain->generation = of->generation;
	return domain;
}

struct domain *domain_new_numbered(struct daemon *daemon, uint32_t number)
{
	struct domain *domain = calloc(1, sizeof(*domain));

	if (!domain)
		return NULL;
	domain->daemon = daemon;
	domain->number = number;
	TAILQ_INIT(&domain->workers);
	TAILQ_INIT(&domain->sessions);
	TAILQ_INIT(&domain->unpinnings);
	window_set_init(&domain->windows, daemon->heritage->number, daemon_devices(daemon));
	domain->respawn = timer_new(daemon->loop, on_respawn, domain);
	domain->idle = timer_new(daemon->loop, on_idle, domain);
	TAILQ_INSERT_TAIL(&daemon->domains, domain, link);
	return domain;
}

static uint64_t back_off_ms(unsigned failures)
{
	uint64_t delay = (uint64_t)DOMAIN_RESPAWN_MS << (failures < 16 ? failures : 16);

	return delay < RESPAWN_MOST_MS ? delay : RESPAWN_MOST_MS;
}

void domain_start_failed(struct domain *domain, const char *reason)
{
	snprintf(domain->start_error, sizeof(domain->start_error), "%s", reason);
	domain->start_failures++;
	log_error("an executor could not start (%u in a row): %s", domain->start_failures, reason);
	timer_start(domain->respawn, back_off_ms(domain->start_failures));
	if (domain->start_failures >= DOMAIN_START_FAILURES && !domain->active)
		due_domain(domain, DOMAIN_DUE_REFUSE);
}

/* True if executors of the two domains must start one after the other. */
static bool take_turns(const struct domain *one, const struct domain *other)
{
	return one->daemon->heritage->exclusive ||
	       owner_of(one->identity.uid) == owner_of(other->identity.uid);
}

static bool is_one_starting(const struct domain *domain)
{
	const struct domain *other;
	const struct worker *worker;

	TAILQ_FOREACH (other, &domain->daemon->domains, link) {
		if (!take_turns(domain, other))
			continue;
		TAILQ_FOREACH (worker, &other->workers, link)
			if (worker->state == WORKER_STARTING)
				return true;
	}
	return false;
}

/* True if an executor, which may be dying, has the only context that the device permits. */
static bool is_device_taken(const struct daemon *daemon)
{
	const struct domain *domain;

	if (!daemon->heritage->exclusive)
		return false;
	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (!TAILQ_EMPTY(&domain->workers))
			return true;
	return false;
}

/* A user's executors start one after the other: channels of a context that are made at the same
 * time as those of another delay each fault in it (backend/cuda/exception.c), and the first
 * executor is ready sooner. A user who needs many executors, because his programs fault, also
 * leaves processors to others meanwhile. */
static bool may_start(const struct domain *domain)
{
	return domain_may_have_executors(domain) && !timer_running(domain->respawn) &&
	       !is_one_starting(domain) && !is_device_taken(domain->daemon) &&
	       domain_executors_there(domain) < domain_executors_wanted(domain);
}

void domain_fill(struct domain *domain)
{
	const struct worker_place place = {domain, domain->number, &domain->identity};
	struct worker *worker;
	int r;

	if (!may_start(domain))
		return;
	domain->daemon->crew.latest++;
	r = worker_start(&domain->daemon->crew, &place, &worker);
	if (r < 0)
		domain_start_failed(domain, strerror(-r));
	else
		TAILQ_INSERT_TAIL(&domain->workers, worker, link);
}

/* Domains without an executor come before spare executors. */
void domain_fill_all(struct domain *domain)
{
	struct domain *other;

	TAILQ_FOREACH (other, &domain->daemon->domains, link)
		if (take_turns(domain, other) && TAILQ_EMPTY(&other->workers))
			domain_fill(other);
	domain_fill(domain);
	TAILQ_FOREACH (other, &domain->daemon->domains, link)
		if (take_turns(domain, other))
			domain_fill(other);
}

void domain_dismiss(struct domain *domain)
{
	if (domain->life != DOMAIN_OPEN)
		return;
	domain->life = DOMAIN_DISMISSED;
	domain_changed(domain);
	domain_watch_idle(domain);
}

void domain_retire(struct domain *domain)
{
	struct worker *worker;

	domain->life = DOMAIN_RETIRES;
	domain_changed(domain);
	timer_stop(domain->respawn);
	timer_stop(domain->idle);
	TAILQ_FOREACH (worker, &domain->workers, link)
		worker_terminate(worker, "its domain is closed");
	due_domain(domain, DOMAIN_DUE_END);
}

bool domain_is_over(const struct domain *domain)
{
	return domain->life == DOMAIN_RETIRES && TAILQ_EMPTY(&domain->workers) &&
	       TAILQ_EMPTY(&domain->sessions);
}

void domain_free(struct domain *domain)
{
	TAILQ_REMOVE(&domain->daemon->domains, domain, link);
	store_drop(domain->daemon->store, domain->record);
	saved_forget(domain);
	timer_free(domain->promotion.halt_timer);
	timer_free(domain->promotion.time_limit_timer);
	timer_free(domain->respawn);
	timer_free(domain->telling);
	timer_free(domain->idle);
	window_set_deinit(&domain->windows);
	free(domain);
}

/*
 * Domains for programs
 */

void domain_prewarm(struct daemon *daemon)
{
	struct domain *domain;

	if (daemon_has_failed(daemon))
		return;
	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->life != DOMAIN_RETIRES)
			return;
	domain = new_domain(daemon);
	if (!domain)
		return;
	/* For programs of the service's own user: where executors run as users, no other user gets
	 * this domain. */
	identity_of_self(&domain->identity);
	domain_changed(domain);
	domain_fill(domain);
}

/* Executors run as their user from their start. */
static bool may_assign(const struct domain *domain, const struct identity *identity)
{
	return domain->use == DOMAIN_NOBODYS && (domain->daemon->heritage->run_as != RUN_AS_PROGRAM ||
							identity_equal(&domain->identity, identity));
}

static struct domain *find_domain(const struct daemon *daemon, const struct identity *identity, bool alone)
{
	struct domain *domain, *nobodys = NULL;

	TAILQ_FOREACH (domain, &daemon->domains, link) {
		if (domain->life != DOMAIN_OPEN)
			continue;
		if (domain->use == DOMAIN_SHARED && !alone && identity_equal(&domain->identity, identity))
			return domain;
		if (may_assign(domain, identity))
			nobodys = domain;
	}
	return nobodys;
}

/* True if the domain's executors go soon and make room. */
static bool is_going(const struct domain *domain)
{
	const struct session *session;

	if (domain->life == DOMAIN_RETIRES || domain->arrival || !domain_is_alone(domain))
		return domain->life == DOMAIN_RETIRES;
	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session->state != SESSION_CLOSING)
			return false;
	return !TAILQ_EMPTY(&domain->sessions);
}

/* Those that were killed and do not end. */
static uint64_t count_stuck(const struct domain *domain)
{
	const struct worker *worker;
	uint64_t count = 0;

	TAILQ_FOREACH (worker, &domain->workers, link)
		count += worker->state == WORKER_TERMINATING && worker->still >= REAP_LOOKS;
	return count;
}

static uint64_t executors_of(const struct daemon *daemon, uid_t owner)
{
	const struct domain *domain;
	uint64_t count = 0;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->use != DOMAIN_NOBODYS && domain->use != DOMAIN_ALONE_BY_ORDER &&
			owner_of(domain->identity.uid) == owner)
			count += is_going(domain) ? count_stuck(domain) : domain_executors(domain);
	return count;
}

/* Return: how many executors go */
static uint64_t retire_idle(struct daemon *daemon, uid_t owner)
{
	struct domain *domain;
	uint64_t count;

	TAILQ_FOREACH (domain, &daemon->domains, link) {
		if (!is_idle(domain) || owner_of(domain->identity.uid) != owner)
			continue;
		count = domain_executors(domain);
		domain_retire(domain);
		return count;
	}
	return 0;
}

const char *domain_refuses(struct daemon *daemon, uid_t uid, uint64_t executors)
{
	uid_t owner = owner_of(uid);
	uint64_t count = executors_of(daemon, owner), most = daemon->config->executors_per_user_max,
		 going = 1;

	/* Even if that is fewer: the user has at least one executor. */
	while (count && going && count + executors > most) {
		going = retire_idle(daemon, owner);
		count -= going;
	}
	return count && count + executors > most ? DOMAIN_NO_SHARE : NULL;
}

bool domain_has_programs(const struct domain *domain)
{
	const struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session->state != SESSION_CLOSING)
			return true;
	return false;
}

/* Where the device lets one process have a context, domains without programs go for a new domain.
 * Return: true if there is room */
static bool make_room(struct daemon *daemon)
{
	struct domain *domain, *next;

	if (!daemon->heritage->exclusive)
		return true;
	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->life != DOMAIN_RETIRES && domain_has_programs(domain))
			return false;
	for (domain = TAILQ_FIRST(&daemon->domains); domain; domain = next) {
		next = TAILQ_NEXT(domain, link);
		if (domain->life != DOMAIN_RETIRES)
			domain_retire(domain);
	}
	return true;
}

static struct domain *make_domain(struct daemon *daemon, const struct identity *identity, const char *alone,
	bool ordered, struct domain_refusal *ret_refusal)
{
	uint64_t executors = 1 + (alone ? 0 : domain_spares(daemon));
	const char *text = ordered ? NULL : domain_refuses(daemon, identity->uid, executors);
	struct domain *domain = NULL;

	*ret_refusal = (struct domain_refusal){CUDA_ERROR_OUT_OF_MEMORY, text ? text : DOMAIN_NO_ROOM};
	if (!text && !make_room(daemon))
		*ret_refusal = (struct domain_refusal){CUDA_ERROR_MPS_SERVER_NOT_READY, DOMAIN_NO_CONTEXT};
	else if (!text && guarantee_allows_executors(daemon, executors))
		domain = new_domain(daemon);
	return domain;
}

/* A program in quarantine may have to wait for its executor. */
static void pace(struct domain *domain, const char *program)
{
	uint64_t pause_ms = fault_history_pace(domain->daemon, domain->identity.uid, program);

	if (pause_ms)
		timer_start(domain->respawn, pause_ms);
}

/* Arguments and return: as domain_of(). @program: NULL: it is not in quarantine */
static struct domain *assign(struct daemon *daemon, const struct identity *identity, const char *alone,
	bool ordered, const char *program, struct domain_refusal *ret_refusal)
{
	struct domain *domain = find_domain(daemon, identity, alone), *other;

	if (!domain)
		domain = make_domain(daemon, identity, alone, ordered, ret_refusal);
	if (!domain)
		return NULL;
	if (domain->use != DOMAIN_NOBODYS)
		return domain;
	domain->use = !alone ? DOMAIN_SHARED : ordered ? DOMAIN_ALONE_BY_ORDER : DOMAIN_ALONE;
	snprintf(domain->reason, sizeof(domain->reason), "%s", alone ? alone : "");
	domain->identity = *identity;
	domain_changed(domain);
	if (program)
		pace(domain, program);
	domain_fill(domain);
	TAILQ_FOREACH (other, &daemon->domains, link)
		domain_watch_idle(other);
	return domain;
}

struct domain *domain_of(struct daemon *daemon, const struct identity *identity, const char *alone,
	bool ordered, struct domain_refusal *ret_refusal)
{
	return assign(daemon, identity, alone, ordered, NULL, ret_refusal);
}

struct domain *domain_for(struct daemon *daemon, const struct identity *identity,
	const struct subject *subject, const char *program, const char *alone,
	struct domain_refusal *ret_refusal)
{
	struct terms terms;
	bool ordered, quarantined;

	terms_find(&daemon->rules, subject, &terms);
	ordered = terms.isolation == CONFIG_ISOLATION_CLIENT;
	quarantined = !ordered && fault_history_is_quarantined(daemon, subject->uid, program);
	if (ordered)
		alone = "isolation = client";
	else if (quarantined)
		alone = "it has had as many faults as quarantine_faults allows (frmpsctl quarantine)";
	return assign(daemon, identity, alone, ordered, quarantined ? program : NULL, ret_refusal);
}
