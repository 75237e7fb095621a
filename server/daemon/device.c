// See device.h.

#include "server/daemon/device.h"

#include <signal.h>
#include <stdio.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/device_drain.h"
#include "server/daemon/life.h"
#include "server/fault/kernel_log.h"
#include "server/log.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/events.h"
#include "server/worker/worker.h"

const char *device_state_name(enum device_state state)
{
	static const char *const names[] = {"serving", "failed", "draining", "drained"};

	return names[state];
}

/*
 * Consequences
 */

static struct domain *find_unretired(const struct daemon *daemon)
{
	struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->life != DOMAIN_RETIRES)
			break;
	return domain;
}

/* Others may go with each. */
static void retire_all(struct daemon *daemon)
{
	struct domain *domain;

	while ((domain = find_unretired(daemon)))
		domain_retire(domain);
}

void device_end_all(struct daemon *daemon)
{
	sessions_end_all(daemon, NULL, SHM_SESSION_FAULTED, daemon->health.code, daemon->health.reason);
	retire_all(daemon);
}

void device_fail(struct daemon *daemon, int32_t code, const char *reason)
{
	const struct event_about nobody = events_about_user(NULL);

	if (daemon_has_failed(daemon) || daemon->phase == DAEMON_LEAVES)
		return;
	daemon->health.state = DEVICE_FAILED;
	daemon->health.code = code;
	snprintf(daemon->health.reason, sizeof(daemon->health.reason), "the device has failed: %s", reason);
	events_note(daemon, EVENT_device, LOG_LEVEL_ERROR, &nobody,
		"%s. All programs get code %d, and new ones are refused. Restart the service when the device "
		"works again",
		daemon->health.reason, (int)code);
	device_end_all(daemon);
}

/* @text: the reason */
static void end_domain(struct domain *domain, int32_t code, const char *text)
{
	const struct event_about about = events_about_user(domain);
	struct daemon *daemon = domain->daemon;

	if (domain->life == DOMAIN_RETIRES || daemon->phase == DAEMON_LEAVES)
		return;
	events_note(daemon, EVENT_device, LOG_LEVEL_ERROR, &about,
		"%s. The programs of uid %lld that it served get code %d", text,
		(long long)domain->identity.uid, (int)code);
	sessions_end_all(daemon, domain, SHM_SESSION_FAULTED, code, text);
	domain_retire(domain);
	domain_prewarm(daemon);
}

/* A fault of the device has hurt one executor of a domain: the domain's sessions get the code, and
 * the domain ends. */
static void contain(struct domain *domain, int32_t code, const char *reason)
{
	char text[300];

	snprintf(text, sizeof(text), "a fault of the device in an executor: %s", reason);
	end_domain(domain, code, text);
}

/* A new process may be denied a device on which others go on: then starting is only tried again. */
static bool finds_no_device(const struct worker *worker)
{
	bool gone = worker->lost_code == CUDA_ERROR_NO_DEVICE ||
		    worker->lost_code == CUDA_ERROR_DEVICE_UNAVAILABLE ||
		    backend_is_of_device((CUresult)worker->lost_code);

	/* An executor that runs as a user from its start may send anything. */
	return gone && !worker->was_ready && worker->daemon->phase != DAEMON_STARTS &&
	       worker->daemon->heritage->run_as != RUN_AS_PROGRAM && !domain_serves_anybody(worker->daemon);
}

bool device_take_lost(struct worker *worker)
{
	/* The memory of its sessions is elsewhere, and it is to end. */
	if (daemon_is_drained(worker->daemon))
		return false;
	if (worker->domain && worker->was_ready && backend_is_of_device((CUresult)worker->lost_code))
		contain(worker->domain, worker->lost_code, worker->lost_text);
	else if (finds_no_device(worker) && !device_drain_take_back(worker->daemon, worker->lost_text))
		device_fail(worker->daemon, worker->lost_code, worker->lost_text);
	return worker->state == WORKER_TERMINATING;
}

/*
 * Xids
 */

static struct worker *find_executor(const struct daemon *daemon, pid_t pid)
{
	struct domain *domain;
	struct worker *worker;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			if (worker->pid == pid)
				return worker;
	return NULL;
}

void device_take_xid(struct daemon *daemon, const struct xid *xid)
{
	struct worker *worker = xid->pid ? find_executor(daemon, xid->pid) : NULL;

	/* What is done to the device then, a reset for example, concerns no program. */
	if (daemon_is_drained(daemon)) {
		log_info("while the device is drained: %s", xid->text);
		return;
	}

	if (xid->scope == XID_OF_DEVICE || !xid->pid || (daemon->keeper && daemon->keeper->pid == xid->pid))
		device_fail(daemon, xid->code, xid->text);
	else if (worker)
		contain(worker->domain, xid->code, xid->text);
	else
		log_warning("a fault of the device hurts only a process outside this service: %s", xid->text);
}

/*
 * Processes that do not end
 */

/* Sessions go on only after the end of the executor that served them, and of an executor whose
 * place the next executor needs. */
static bool is_waited_for(const struct worker *worker)
{
	const struct domain *domain = worker->domain;
	const struct worker *other;

	if (!domain_has_programs(domain))
		return false;
	if (domain->active == worker)
		return true;
	TAILQ_FOREACH (other, &domain->workers, link)
		if (other->state != WORKER_TERMINATING)
			return false;
	return true;
}

bool device_take_stay(struct worker *worker)
{
	struct daemon *daemon = worker->daemon;
	char text[128];

	snprintf(text, sizeof(text), "%s %d was killed and does not end: the kernel or a driver holds it",
		role_name(worker->role), (int)worker->pid);
	if (daemon->phase == DAEMON_LEAVES) {
		log_error("%s: it is left behind", text);
		return true;
	}
	/* No program waits for it, and the operator learns of it (device_drain.c). */
	if (daemon_is_drained(daemon))
		return false;
	if (!worker->domain) {
		device_fail(daemon, CUDA_ERROR_DEVICE_UNAVAILABLE, text);
	} else if (is_waited_for(worker)) {
		end_domain(worker->domain, CUDA_ERROR_DEVICE_UNAVAILABLE, text);
	}
	return false;
}
