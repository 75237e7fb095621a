// Work that an adopted daemon resumes: promotions, executors that were terminated or are behind,
// sessions that were ending or waited, requests. Each handler finds its subject in a state that the
// handler knows.

#include "server/adopt/resume.h"

#include "server/daemon/depart.h"
#include "server/daemon/device.h"
#include "server/daemon/life.h"
#include "server/daemon/sink_make.h"
#include "server/fault/promote.h"
#include "server/loop/shared_fd.h"
#include "server/loop/turn_end.h"
#include "server/service.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/daemon/requests.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/standby/swap.h"
#include "server/standby/warm.h"
#include "server/worker/worker.h"

/* A request may be under way in so many crashes of daemons in a row. */
#define CRASHES_MOST 2u

/* Kills a worker that was being terminated once more; replaces a standby that is behind. */
static void settle_worker(struct worker *worker)
{
	bool standby = worker->state == WORKER_WARM || worker->state == WORKER_WARMING;

	if (worker->state == WORKER_TERMINATING) {
		worker_await_memory(worker);
		worker_kill(worker);
	} else if (standby && worker->domain && (worker->mirrors || worker->state == WORKER_WARMING)) {
		worker->mirrors = 0;
		worker_terminate(worker, "the daemon died in the middle of its messages to this standby");
	}
}

static void settle_domain(struct domain *domain)
{
	struct worker *worker, *next;

	TAILQ_FOREACH (worker, &domain->workers, link)
		settle_worker(worker);
	promote_resume(domain);
	for (worker = TAILQ_FIRST(&domain->workers); worker; worker = next) {
		next = TAILQ_NEXT(worker, link);
		if (worker->state == WORKER_WARM)
			warm_done(domain, worker);
	}
	domain_watch_idle(domain);
}

/* May end the session. */
static void resume_session(struct session *session)
{
	struct session_again again = session->again;

	session->again = (struct session_again){0};
	shared_fd_unref(again.fd);
	chunk_unref(again.chunk);
	if (session->state == SESSION_SERVED)
		session_read_next(session);
	/* The executor that held its commands may sleep. */
	if (session->was_leaving)
		session_set_memory(session, SESSION_MEMORY_HERE);
	session->was_leaving = false;
	if (session->given_up)
		session_end_given_up(session);
	else if (session->state == SESSION_ELSEWHERE)
		session_leave(session);
	else if (session->state == SESSION_CLOSING)
		session_closing_again(session);
	else if (session->crashes > CRASHES_MOST)
		session_reject(session, "the daemon crashed several times during a request of this program");
	else if (word_acquire(&session->view.server->state) == SHM_SESSION_CLOSED)
		session_end(session, 0);
	else if (session->state == SESSION_OPENING)
		session_open(session);
	else if (session->memory != SESSION_MEMORY_HERE)
		swap_adopt(session);
	else if (session->request)
		request_advance(session->request);
}

void resume(struct daemon *daemon)
{
	struct domain *domain, *next_domain;
	struct session *session, *next;

	/* The number of crashes, before a request can crash this daemon as well. */
	TAILQ_FOREACH (session, &daemon->sessions, link)
		session_changed(session);
	turn_end_now(daemon->turn_end);
	if (daemon->keeper)
		settle_worker(daemon->keeper);
	TAILQ_FOREACH (domain, &daemon->domains, link)
		settle_domain(domain);
	for (session = TAILQ_FIRST(&daemon->sessions); session; session = next) {
		next = TAILQ_NEXT(session, link);
		resume_session(session);
	}
	for (domain = TAILQ_FIRST(&daemon->domains); domain; domain = next_domain) {
		next_domain = TAILQ_NEXT(domain, link);
		depart_look_into(domain);
		swap_look_into(domain);
		if (domain->life == DOMAIN_RETIRES)
			domain_retire(domain);
	}
	if (daemon_has_failed(daemon))
		device_end_all(daemon);
	sink_resume_all(daemon);
	daemon_adopted(daemon);
}
