// See time_limit.h. A stream's oldest command is over the limit when something of the stream is on
// the device and its completion word has not moved for the limit's time. The daemon looks several
// times within the limit, so an end is a twentieth of the limit late at most. Waiting behind other
// sessions' kernels counts at first: the device does not say when a kernel begins. A look by the
// executor finds a session that is over the limit and only waits (endless.c), and its time begins
// anew. While the device stands still for a fault, which takes seconds where the device is full, no
// time passes, nor while no executor has the session; commands that another executor issues again
// begin anew.

#include "server/fault/time_limit.h"

#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "server/fault/attribute.h"
#include "server/fault/endless.h"
#include "server/fault/evidence.h"
#include "server/incident/incident.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/session.h"

#define LOOKS	 20u
#define LEAST_MS 50u

struct time_limit_look {
	uint64_t done;
	uint64_t since_us;   /* 0: nothing of the stream is on the device */
	uint32_t generation; /* of the executor that issued the command */
};

/* The looks of so many streams, of which the new ones are zero; NULL: no memory. */
static struct time_limit_look *grow(struct session_evidence *evidence, uint32_t count)
{
	struct time_limit_look *grown = evidence->limit_looks;

	if (count <= evidence->limit_look_count)
		return grown;
	grown = reallocarray(grown, count, sizeof(*grown));
	if (!grown)
		return NULL;
	memset(&grown[evidence->limit_look_count], 0, (count - evidence->limit_look_count) * sizeof(*grown));
	evidence->limit_looks = grown;
	evidence->limit_look_count = count;
	return grown;
}

bool time_limit_is_over(struct session *session, uint64_t now_us, uint64_t limit_us)
{
	const struct shm_server_header *server = session->view.server;
	bool over = false, stands_still = word_acquire(&server->doubtful) != 0;
	uint32_t generation = word_acquire(&server->generation);
	uint32_t used = shm_view_used(&session->view);
	struct time_limit_look *limit_looks = grow(&session->evidence, used);

	for (uint32_t slot = 0; limit_looks && slot < used; slot++) {
		struct time_limit_look *seen = &limit_looks[slot];
		uint64_t issued = word_acquire(&session->view.states[slot].issued);
		uint64_t done = issued ? shm_view_known_done(&session->view, slot) : 0;

		if (issued <= done)
			seen->since_us = 0;
		else if (!seen->since_us || seen->done != done || seen->generation != generation ||
			 stands_still)
			*seen = (struct time_limit_look){done, now_us, generation};
		else
			over |= now_us - seen->since_us >= limit_us;
	}
	return over;
}

static void look(struct domain *domain)
{
	uint64_t now_us = timer_now_us(), limit_us = domain->daemon->config->max_kernel_seconds * 1000000;
	struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link) {
		/* A session that has its error still has work there, until the work ends or the
		 * session closes. */
		if (session->state != SESSION_SERVED || !attribute_was_served(session, domain->active))
			continue;
		/* All sessions: any number of sessions that wait may come before the culprit. */
		if (time_limit_is_over(session, now_us, limit_us))
			endless_over_limit(domain, session);
		if (!incident_is_serving(domain->promotion.state))
			return;
	}
}

static uint64_t interval_ms(const struct domain *domain)
{
	uint64_t ms = domain->daemon->config->max_kernel_seconds * 1000 / LOOKS;

	return ms < LEAST_MS ? LEAST_MS : ms;
}

static void on_timer(void *context)
{
	struct domain *domain = context;

	if (incident_is_serving(domain->promotion.state))
		look(domain);
	timer_start(domain->promotion.time_limit_timer, interval_ms(domain));
}

void time_limit_watch(struct domain *domain)
{
	struct promotion *promotion = &domain->promotion;

	if (!domain->daemon->config->max_kernel_seconds || promotion->time_limit_timer)
		return;
	promotion->time_limit_timer = timer_new(domain->daemon->loop, on_timer, domain);
	timer_start(promotion->time_limit_timer, interval_ms(domain));
}
