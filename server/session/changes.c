// See changes.h.

#include "server/session/changes.h"

#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

static void save_sessions(struct daemon *daemon)
{
	struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link) {
		if (session->is_changed)
			session_save(session);
		session->is_changed = false;
	}
}

static void save_domains(struct daemon *daemon)
{
	struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link) {
		if (domain->is_changed)
			domain_save(domain);
		domain->is_changed = false;
	}
}

void changes_save(struct daemon *daemon)
{
	if (!daemon->store)
		return;
	daemon_save(daemon);
	workers_save(&daemon->crew);
	if (!daemon->has_changes)
		return;
	daemon->has_changes = false;
	save_sessions(daemon);
	/* Last, since it names the active executor: a turn may be recorded in parts (store.c). */
	save_domains(daemon);
}
