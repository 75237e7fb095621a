// See overrun.h. A stream's oldest command is over the limit when something of the stream is on the
// device and its completion word has not moved for that long. That is looked at a few times within
// the limit, so an end comes at most a twentieth of it late. Waiting behind other sessions' kernels
// counts at first: the device does not say when a kernel begins. Who is over the limit and only
// waits is found by a look (endless.c), and its time begins anew. While the device stands still for
// a fault, which takes seconds where it is full, no time passes, nor while no executor has the
// session; what another one issues again begins anew.

#include "server/fault/overrun.h"

#include <errno.h>
#include <stdlib.h>

#include "server/config/config.h"
#include "server/fault/convict.h"
#include "server/fault/endless.h"
#include "server/fault/evidence.h"
#include "server/fault/promote.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/session.h"

#define LOOKS	 20u
#define LEAST_MS 50u

/* One stream. */
struct overrun {
	uint64_t done;
	uint64_t since_us;   /* 0: nothing of it is on the device */
	uint32_t generation; /* of the executor that has it there */
};

bool overrun_is_over(struct session *session, uint64_t now_us, uint64_t limit_us)
{
	const struct shm_server_header *server = session->view.server;
	bool over = false, stands_still = word_acquire(&server->doubtful) != 0;
	uint32_t generation = word_acquire(&server->generation);
	struct overrun *overruns = session->evidence->overruns;
	uint32_t used = shm_view_used(&session->view);

	if (!overruns)
		overruns = session->evidence->overruns = calloc(SHM_STREAMS, sizeof(*overruns));
	for (uint32_t slot = 0; overruns && slot < used; slot++) {
		struct overrun *seen = &overruns[slot];
		uint64_t issued = word_acquire(&session->view.states[slot].issued);
		uint64_t done = issued ? shm_view_known_done(&session->view, slot) : 0;

		if (issued <= done)
			seen->since_us = 0;
		else if (!seen->since_us || seen->done != done || seen->generation != generation ||
			 stands_still)
			*seen = (struct overrun){done, now_us, generation};
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
		/* One that has its error has work there as well, until that ends or it closes. */
		if (session->state != SESSION_SERVED || !convict_was_served(session, domain->active))
			continue;
		/* All of them: who is at fault may come behind any number that wait for it. */
		if (overrun_is_over(session, now_us, limit_us))
			endless_over_limit(domain, session);
		if (!incident_is_serving(domain->promotion->state))
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

	if (incident_is_serving(domain->promotion->state))
		look(domain);
	timer_start(domain->promotion->overrun_timer, interval_ms(domain));
}

int overrun_init(struct domain *domain)
{
	if (!domain->daemon->config->max_kernel_seconds)
		return 0;
	domain->promotion->overrun_timer = timer_new(domain->daemon->loop, on_timer, domain);
	if (!domain->promotion->overrun_timer)
		return -ENOMEM;
	timer_start(domain->promotion->overrun_timer, interval_ms(domain));
	return 0;
}

void overrun_deinit(struct domain *domain)
{
	domain->promotion->overrun_timer = timer_free(domain->promotion->overrun_timer);
}

void overrun_forget(struct session *session)
{
	free(session->evidence->overruns);
	session->evidence->overruns = NULL;
}
