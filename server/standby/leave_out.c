// Sessions that no standby can mirror: a resource of such a session, a module for example, crashes
// each executor that rebuilds the resource. Without such a session the others have a standby; with
// such a session nobody has.
//
//               an executor dies at it           the next as well
//   MIRRORED ────────────────────────► SUSPECTED ────────────────────► LEFT_OUT ──► the session's end
//      ▲                                   │
//      └───────────────────────────────────┘ an executor has mirrored everything and lives; or the
//                                            next executor dies at another session
//
// The rules count executors that have never served, and that die without an order of the daemon's.
// An executor dies at the session of its oldest request in flight: executors handle requests in
// order. An executor that dies without such a request, at its start for example, changes nothing.
//
// LEFT_OUT   the daemon does not send the session to a new executor, where the session is
//            immovable. The executor that serves the session goes on; when that executor is lost,
//            the program gets an error. The session does not move into an executor of its own
//            either, which would mirror the same resource. A standby that had mirrored the session
//            before goes on mirroring, and may take the session over
//
// The state is recorded with the session: a daemon without that record would lose two more
// executors, and be without a standby meanwhile.

#include "server/standby/leave_out.h"

#include <signal.h>

#include "server/log.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

/* True if the executor is known to have ended by itself. */
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
	session_changed(session);
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

/* daemon/children.c records the changes with all other state of the domain. */
void leave_out_judge(struct domain *domain, const struct worker *worker)
{
	struct session *session = domain_find_session(domain, worker->died_at);

	if (!session || session->state == SESSION_CLOSING || worker->generation || !died(worker) ||
		domain->daemon->phase == DAEMON_LEAVES || domain->life == DOMAIN_RETIRES)
		return;
	if (session->mirroring == SESSION_SUSPECTED)
		leave_out(session, worker);
	else if (session->mirroring == SESSION_MIRRORED)
		suspect(domain, session);
}
