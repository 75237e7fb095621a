// The reserve of a domain: a domain for one program alone, without the program, whose executor has its context already.
// To make a context takes the driver a second or two (H200), and whoever waits for the end of a trial waits for that
// first of all. So where suspects are tried (on_fault = fast, probation) and somebody vouches for repetition, one
// is made as soon as the domain has its standby, which comes first: contexts are made one after the other.
//
//   (none) ──── standby warm, somebody vouches ───► kept ──── reserve_take() ───► a trial's (move.c)
//                                                    │ nobody vouches any more, the domain goes,
//                                                    ▼ its executor cannot start
//                                                  retired
//
// It costs the memory of a context. It is not recorded: after the death of a daemon it is an empty domain, which goes.
//
// Generations: a session's only grow, and those of the reserve begin when its executor does, long before it is known
// what generation the session comes from. So they begin AHEAD of those of the domain. One in which the session would
// use the timeline that it has used last is of no use: words of both generations would be the same.

#include "server/failover/reserve.h"

#include <stdio.h>

#include "server/config/config.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/session/client.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "shm/region.h"

/* More promotions than a domain has while it is kept. */
#define AHEAD (1u << 16)

bool reserve_is(const struct domain *domain)
{
	return domain->reserve_for != 0;
}

static struct domain *find(const struct domain *domain)
{
	struct domain *other;

	TAILQ_FOREACH (other, &domain->daemon->domains, link)
		if (other->reserve_for == domain->number && !other->retiring)
			return other;
	return NULL;
}

static bool is_wanted(const struct domain *domain)
{
	const struct config *config = domain->daemon->config;
	const struct client *client;

	if (config->on_fault != CONFIG_ON_FAULT_FAST || config->probation == CONFIG_PROBATION_OFF ||
		domain->alone || domain->retiring || domain->daemon->draining || domain->daemon->leaving)
		return false;
	TAILQ_FOREACH (client, &domain->clients, domain_link)
		if (client->recovery && client->state != CLIENT_CLOSING)
			return true;
	return false;
}

static void make(struct domain *domain)
{
	struct domain *reserve = domain_new_alone(domain, domain->promotion.generation + AHEAD);

	if (!reserve)
		return;
	reserve->reserve_for = domain->number;
	snprintf(reserve->reason, sizeof(reserve->reason), "kept ready for a trial");
	domain_keep(reserve);
	log_debug("an executor is kept ready for trials of uid %lld", (long long)domain->identity.uid);
	domain_fill(reserve);
}

void reserve_look(struct domain *domain)
{
	if (!is_wanted(domain))
		reserve_drop(domain);
	else if (domain_serving(domain) && promote_find_warm(domain) && !find(domain))
		make(domain);
}

void reserve_drop(struct domain *domain)
{
	struct domain *reserve = find(domain);

	if (reserve)
		domain_retire(reserve);
}

static bool fits(const struct domain *reserve, const struct client *client)
{
	uint32_t former = word_acquire(&client->view.server->generation);
	uint32_t generation = reserve->active->generation;

	return generation > client->domain->promotion.generation &&
	       generation % SHM_TIMELINES != former % SHM_TIMELINES;
}

struct domain *reserve_take(const struct client *client)
{
	struct domain *reserve = find(client->domain);

	if (!reserve || !domain_serving(reserve))
		return NULL;
	if (!fits(reserve, client)) {
		domain_retire(reserve);
		return NULL;
	}
	reserve->reserve_for = 0;
	return reserve;
}
