// See formers.h.

#include "server/session/formers.h"

#include "server/config/config.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/linger.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/worker/worker.h"

void formers_list(const struct worker *worker, struct formers *ret_formers)
{
	const struct domain *domain = worker->domain;
	const struct session *session;
	const struct worker *other;

	ret_formers->count = 0;
	TAILQ_FOREACH (other, &domain->workers, link)
		if (other != worker && other->generation && ret_formers->count < FORMERS_MAX)
			ret_formers->pids[ret_formers->count++] = (uint32_t)other->pid;
	/* Nobody comes to any other domain but from outside. */
	if (!domain->alone)
		return;
	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (sink_is_there(session))
			ret_formers->count += linger_list(session, ret_formers->pids + ret_formers->count,
				FORMERS_MAX - ret_formers->count);
}

void formers_tell(const struct domain *domain)
{
	struct worker *active = domain->active;
	struct wire_message message = {.type = WIRE_ACTIVATE};
	struct formers formers;

	if (!active || domain_worker_is_failing(active))
		return;
	formers_list(active, &formers);
	message.activate = (struct wire_activate){.generation = active->generation,
		.formers = {formers.pids, formers.count},
		.reason = "",
		.canary_ms = (uint32_t)domain->daemon->config->canary_patience_ms};
	worker_request(active, &message, NULL, 0, worker_ignore_reply, NULL);
}
