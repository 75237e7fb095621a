// Post-mortem. With on_fault = fast the executor is off the device some milliseconds after the first sign of a fault, and
// everybody goes on before anybody knows whose it was. Its driver does not mind: it reads what faulted from the context
// as it was stopped, and has written its dump 35 to 70 ms after the sign, with kernel and class of the fault as exact as
// otherwise (H200, driver 580: 43 of 43, of nine kinds), while the survivors' kernels run.
//
//   promote_off_device() ──► due ──┬─► found       the culprit, if it waits for its trial or is latent, is told what the
//                                  │               driver would tell; everybody else is no suspect any more
//                                  └─► not found   READ_MS are over, its process has ended, or nobody can be named:
//                                                  suspects are tried as ever (probation.c)
//
// While it is due nobody is tried, and nobody is told who is only suspected. Not only that this may prove needless: a fault
// in a trial, which is in another context, was seen to stop everybody else's for 130 ms (7 of 10).
//
// Who is named and is not waiting has been told already, or is gone, or has its commands repeated beside others right
// now: then they fault again, and the next one of these finds it. If they do not, it was a kernel before them that
// looked finished: it is told behind them, and so is who cannot be told at this moment (latent.h).
//
// An executor that has been asked for something may be at it, and the next one is asked when it has ended: so it is ended
// at once, and there is no post-mortem. Nor is there one in another life of the daemon: it is not recorded.

#include "server/failover/postmortem.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/config/config.h"
#include "server/failover/latent.h"
#include "server/failover/probation.h"
#include "server/failover/promote.h"
#include "server/failover/verdict.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/session/client.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"

/* The driver copies the code of all that is loaded first: a second with four PyTorch programs. */
#define READ_MS 2000u

/* Otherwise the next executor is not even started before its end. */
static bool has_room(const struct domain *domain)
{
	return promote_find_warm(domain) || (domain->daemon->config->standbys && !domain->alone);
}

bool postmortem_begin(struct domain *domain, struct worker *worker)
{
	if (!worker->reads || !TAILQ_EMPTY(&worker->pending) || !has_room(domain) || domain->retiring ||
		domain->daemon->leaving)
		return false;
	/* As it is counted when it is judged (convict.c). */
	worker->fault = latent_fault(domain, domain->promotion.losses + 1);
	return true;
}

void postmortem_await(struct domain *domain, struct worker *worker)
{
	bool known = domain->promotion.verdict.culprit != 0;

	if (known)
		worker->fault = 0;
	worker_condemn_later(
		worker, known ? PROMOTE_UNDISTURBED_MS : READ_MS, "its clients go on in the next one");
}

static void conclude(struct domain *domain, struct worker *worker)
{
	worker->fault = 0;
	worker_end_in(worker, PROMOTE_UNDISTURBED_MS);
	probation_turn(domain);
}

void postmortem_take(struct worker *worker, uint64_t session, const struct wire_trouble *fault)
{
	struct finding *finding, **end = &worker->finding;

	if (!worker->domain)
		return;
	while (*end)
		end = &(*end)->next;
	finding = calloc(1, sizeof(*finding));
	log_bug_on(!finding);
	snprintf(finding->kernel, sizeof(finding->kernel), "%s", fault->text);
	finding->session = session;
	finding->trouble = *fault;
	finding->trouble.text = finding->kernel;
	snprintf(finding->reason, sizeof(finding->reason), "a fault in kernel %s, instruction at %#llx",
		finding->kernel[0] ? finding->kernel : "(unnamed)", (unsigned long long)fault->instruction);
	*end = finding;
	postmortem_look(worker->domain);
}

void postmortem_forget(struct finding **list)
{
	struct finding *finding;

	while ((finding = *list)) {
		*list = finding->next;
		free(finding);
	}
}

void postmortem_fail(struct worker *worker)
{
	if (worker->domain && worker->fault && !worker->finding)
		conclude(worker->domain, worker);
}

void postmortem_give_up(struct worker *worker)
{
	if (!worker->domain || !worker->fault || worker->finding)
		return;
	worker->fault = 0;
	probation_turn(worker->domain);
}

/* The first one has explained the fault. What looked finished of this one is not repeated, so it does not fault again:
 * it is told. */
static void take_another(struct domain *domain, const struct finding *finding)
{
	struct client *client = daemon_find_client(domain->daemon, finding->session);

	if (!client)
		return;
	if (client->probation)
		latent_name(client);
	else
		latent_convict(client, finding->trouble.code, finding->reason);
}

/* @fault: that it explains; 0: that is explained */
static void take_finding(struct domain *domain, uint64_t fault, const struct finding *finding)
{
	if (!fault) {
		take_another(domain, finding);
		return;
	}
	verdict_read(domain, finding->session, &finding->trouble);
	probation_named(domain, fault, finding->session, finding->trouble.code, finding->reason);
}

static void take_next(struct domain *domain, uint64_t fault, struct finding **list)
{
	struct finding *finding = *list;

	*list = finding->next;
	take_finding(domain, fault, finding);
	free(finding);
}

void postmortem_look(struct domain *domain)
{
	struct worker *worker;

	if (domain->promotion.state != PROMOTE_STEADY)
		return;
	while (domain->findings)
		take_next(domain, domain->findings->fault, &domain->findings);
	TAILQ_FOREACH (worker, &domain->workers, link)
		while (worker->finding) {
			uint64_t fault = worker->fault;

			take_next(domain, fault, &worker->finding);
			if (fault)
				conclude(domain, worker);
		}
}

bool postmortem_is_due(const struct domain *domain)
{
	const struct worker *worker;

	TAILQ_FOREACH (worker, &domain->workers, link)
		if (worker->fault)
			return true;
	return false;
}

bool postmortem_may_explain(const struct daemon *daemon, uint64_t fault)
{
	const struct domain *domain;
	const struct worker *worker;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			if (worker->fault == fault)
				return true;
	return false;
}

void postmortem_end(struct domain *domain, struct worker *worker)
{
	struct finding **end = &domain->findings;

	if (worker->finding)
		worker->finding->fault = worker->fault;
	while (*end)
		end = &(*end)->next;
	*end = worker->finding;
	worker->finding = NULL;
	if (!worker->fault)
		return;
	worker->fault = 0;
	probation_turn(domain);
}
