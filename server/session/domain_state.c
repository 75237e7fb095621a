// Questions about a domain. See domain.h.

#include "server/config/config.h"
#include "server/incident/incident.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
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
	struct worker *active = domain->active;

	/* The incident begins at the end of the turn in which a loss is noticed. A daemon that
	 * adopts may lack the executor. */
	return active && active->state == WORKER_ACTIVE && !active->lost &&
			       incident_is_serving(domain->promotion.state)
		       ? active
		       : NULL;
}

bool domain_serves_anybody(const struct daemon *daemon)
{
	const struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain_serving(domain))
			return true;
	return false;
}

bool domain_worker_is_failing(const struct worker *worker)
{
	const struct domain *domain = worker->domain;

	return worker->state == WORKER_TERMINATING || worker->lost ||
	       (domain && domain->active == worker && incident_is_halting(domain->promotion.state));
}

unsigned domain_executors_there(const struct domain *domain)
{
	const struct worker *worker;
	unsigned count = 0;

	TAILQ_FOREACH (worker, &domain->workers, link)
		count++;
	return count;
}

unsigned domain_executors_wanted(const struct domain *domain)
{
	return domain->life == DOMAIN_RETIRES
		       ? 0
		       : 1 + (domain_is_alone(domain) ? 0 : domain_spares(domain->daemon));
}

bool domain_may_have_executors(const struct domain *domain)
{
	return domain->life != DOMAIN_RETIRES && domain->daemon->phase != DAEMON_LEAVES &&
	       !daemon_is_drained(domain->daemon);
}

unsigned domain_spares(const struct daemon *daemon)
{
	return daemon->heritage->exclusive ? 0 : (unsigned)daemon->config->standbys;
}

unsigned domain_executors(const struct domain *domain)
{
	unsigned there = domain_executors_there(domain), wanted = domain_executors_wanted(domain);

	return there > wanted ? there : wanted;
}
