// Latent sessions. With on_fault = fast the mark of a kernel that faulted may come before any sign of the fault.
// Then nothing of its session is in doubt, and its program may have been told that the kernel ended. So at a fault
// that nobody is proved guilty of, each session that has run something within SHM_SIGN_NS before the sign may have
// been it. While the culprit may still be found such a session goes on:
//
//   latent ──► cleared   a trial has found the culprit, or the executor has named it (postmortem.c)
//     │
//     └──────► told      it was this one; or nothing is left that could show who it was: the executor has not said it, all
//                        trials of that fault are over, or last for too long, and what is repeated beside others is done
//
// Who is named while it is held, moves or has commands repeated is told behind that (LATENT_NAMED), whatever else is
// found out: if they fault again it has been told by then.
//
// A fault is named by its domain and the number of the loss, so what is found out about one says nothing about the
// next. A session that is latent already is told at the second fault (convict.c).
//
// Who is told is served at that moment: the executor has written RUNNING and writes the state again only where the
// session ends by itself. While that is not certain (a promotion, a move) it is looked at again later.

#include "server/failover/latent.h"

#include <stdbool.h>

#include "protocol/cuda_abi.h"
#include "server/failover/convict.h"
#include "server/failover/probation.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/client.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/offender.h"

#define SOON_MS	 1u
#define AGAIN_MS 100u

#define TOLD                                                                                                 \
	"kernels of this program ran shortly before a fault that nobody was proved guilty of. It may have "  \
	"been one of them, whatever was told of their end"

#define TOLD_NAMED                                                                                           \
	"a kernel of this program faulted, whatever was told of its end: the executor has found that out "   \
	"behind it"

/* In place of a fault: it is known that it was this one. */
#define LATENT_NAMED UINT64_MAX

uint64_t latent_fault(const struct domain *domain, uint64_t loss)
{
	return (uint64_t)domain->number << 32 | (uint32_t)loss;
}

static void set(struct client *client, uint64_t fault)
{
	client->latent = fault;
	client_keep(client);
}

void latent_note(struct client *client, uint64_t fault)
{
	set(client, fault);
	/* Those that are to be tried may end before they are. */
	latent_look(client->daemon);
}

void latent_clear(struct daemon *daemon, uint64_t fault)
{
	struct client *client;

	TAILQ_FOREACH (client, &daemon->clients, link)
		if (client->latent == fault && client->state != CLIENT_CLOSING)
			set(client, 0);
}

static bool is_served(const struct client *client)
{
	const struct worker *worker = domain_serving(client->domain);

	return worker && !client->attach.worker && !client->move && convict_was_served(client, worker) &&
	       word_acquire(&client->view.server->state) == SHM_SESSION_RUNNING;
}

void latent_name(struct client *client)
{
	if (client_is_live(client))
		latent_note(client, LATENT_NAMED);
}

bool latent_convict(struct client *client, int32_t code, const char *reason)
{
	if (!client_is_live(client))
		return false;
	if (!is_served(client)) {
		latent_name(client);
		return false;
	}
	client_finish(client, SHM_SESSION_FAULTED, code, reason);
	set(client, 0);
	client->daemon->counters.culprits++;
	offender_note(client->daemon, client);
	return true;
}

static bool may_be_explained(const struct client *client)
{
	return client->latent == LATENT_NAMED ? probation_repeats(client)
					      : probation_may_explain(client->daemon, client->latent);
}

/* Told twice is told once, not at all is not. */
static void tell(struct client *client)
{
	if (client->latent == LATENT_NAMED) {
		latent_convict(client, CUDA_ERROR_LAUNCH_FAILED, TOLD_NAMED);
		return;
	}
	client_finish(client, SHM_SESSION_FAULTED, CUDA_ERROR_LAUNCH_FAILED, TOLD);
	set(client, 0);
}

static void on_timer(void *context)
{
	struct daemon *daemon = context;
	struct client *client;
	bool again = false;

	TAILQ_FOREACH (client, &daemon->clients, link) {
		if (!client->latent || client->state == CLIENT_CLOSING || !client_is_live(client))
			continue;
		if (may_be_explained(client) || !is_served(client)) {
			again = true;
			continue;
		}
		tell(client);
	}
	if (again && !daemon->leaving)
		timer_start(daemon->latent_timer, AGAIN_MS);
}

void latent_look(struct daemon *daemon)
{
	if (!daemon->latent_timer)
		daemon->latent_timer = timer_new(daemon->loop, on_timer, daemon);
	log_bug_on(!daemon->latent_timer);
	timer_start(daemon->latent_timer, SOON_MS);
}
