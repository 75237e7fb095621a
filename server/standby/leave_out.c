// Sessions that no standby can mirror: a resource of one of them, a module for example, crashes
// each executor that rebuilds it. Without them the others have a standby; with them nobody has.
//
//               an executor dies at it           the next one as well
//   MIRRORED ────────────────────────► SUSPECTED ────────────────────► LEFT_OUT ──► the session's end
//      ▲                                   │
//      └───────────────────────────────────┘ an executor has mirrored everything and lives; or the
//                                            next one dies at another session
//
// Counted are executors that have never served, and that die without an order of the daemon's. One
// dies at the session of its oldest request in flight: it handles requests in their order. One that
// dies without such a request, at its start for example, changes nothing.
//
// LEFT_OUT   the daemon does not send it to a new executor, where it is an immovable session. The
//            executor that serves it goes on; when that is lost its program gets an error. It does
//            not move into an executor of its own either: that one would mirror the same. A standby
//            that had it before goes on mirroring it, and may take it over
//
// The state is recorded with the session: a daemon that has forgotten it would lose two more
// executors, and be without a standby meanwhile.

#include "server/standby/leave_out.h"

#include <signal.h>

#include "server/log.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

/* Return: whether it is known to have ended by itself. */
static bool died(const struct worker *worker)
{
	return worker->lost || worker->exit_signal != SIGKILL;
}

static void leave_out(struct session *session, const struct worker *worker)
{
	char reason[256];

	worker_describe_end(worker, reason, sizeof(reason));
	session->mirroring = SESSION_LEFT_OUT;
	log_warning("session %llu (process %d, %s) cannot be moved to any executor from now on: two in a row "
		    "died at its %s, the latest so: %s",
		(unsigned long long)session->number, (int)session->pid, session->program,
		wire_type_name(worker->died_of), reason);
}

static void forget(struct session *session)
{
	if (session->mirroring != SESSION_SUSPECTED)
		return;
	session->mirroring = SESSION_MIRRORED;
	session_keep(session);
}

void leave_out_forget(struct domain *domain)
{
	struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		forget(session);
}

static void suspect(struct domain *domain, struct session *session)
{
	leave_out_forget(domain);
	session->mirroring = SESSION_SUSPECTED;
}

/* What it changes is recorded with everything of the domain (domain_worker_gone()). */
void leave_out_judge(struct domain *domain, const struct worker *worker)
{
	struct session *session = domain_find_session(domain, worker->died_at);

	if (!session || session->state == SESSION_CLOSING || worker->generation || !died(worker) ||
		domain->daemon->leaving || domain->retiring)
		return;
	if (session->mirroring == SESSION_SUSPECTED)
		leave_out(session, worker);
	else if (session->mirroring == SESSION_MIRRORED)
		suspect(domain, session);
}
