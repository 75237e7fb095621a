// See due.h.

#include "server/session/due.h"

#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/session.h"

void due_domain(struct domain *domain, enum domain_due due)
{
	domain->due |= due;
	domain->daemon->due |= DAEMON_DUE_DOMAINS;
}

void due_session(struct session *session, enum session_due due)
{
	session->due |= due;
	session->daemon->due |= DAEMON_DUE_SESSIONS;
}

void due_answer(struct session *session, enum session_answer answer)
{
	session->answer = answer;
	session->daemon->has_answers = true;
}

void due_daemon(struct daemon *daemon, enum daemon_due due)
{
	daemon->due |= due;
}
