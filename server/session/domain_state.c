// What others ask a domain. See domain.h.

#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/rooms.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

struct session *domain_find_session(const struct domain *domain, uint64_t number)
{
	struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session->number == number)
			break;
	return session;
}

struct worker *domain_serving(const struct domain *domain)
{
	return domain->daemon->fault_room->is_serving(domain) ? domain->active : NULL;
}

bool domain_worker_is_failing(const struct worker *worker)
{
	const struct domain *domain = worker->domain;

	return worker->state == WORKER_CONDEMNED ||
	       (domain && domain->active == worker && domain->daemon->fault_room->is_halting(domain));
}
