// See session.h.

#include "client/state/session.h"

struct session sessions[PLACE_DEVICES];
__thread struct session *session_now __attribute__((tls_model("initial-exec"))) = &sessions[0];

static word32 bound; /* sessions from here on were never begun */

struct session *session_next(struct session *session)
{
	struct session *end = sessions + word_acquire(&bound);

	for (session = session ? session + 1 : sessions; session < end; ++session)
		if (session_is_open(session))
			return session;
	return NULL;
}

void session_begin(struct session *session)
{
	uint32_t behind = (uint32_t)session_ordinal(session) + 1;

	if (word_relaxed(&session->life) != SESSION_UNUSED)
		return;
	session->connection = CONNECTION_NULL;
	/* Pairs with connect_abandon(). */
	word_release(&session->life, SESSION_BEGUN);
	if (word_relaxed(&bound) < behind)
		word_release(&bound, behind);
}

struct session *session_holding(uint64_t address)
{
	SESSION_FOREACH (session)
		if (address - session->connection.window_base < WINDOW_BYTES)
			return session;
	return NULL;
}

bool session_is_own(uint64_t number)
{
	SESSION_FOREACH (session)
		if (session->connection.session == number)
			return true;
	return false;
}

void session_use_of(uint64_t address)
{
	struct session *session = session_holding(address);

	if (session)
		session_use(session);
}
