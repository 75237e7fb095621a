// See leaving.h.

#include "server/standby/leaving.h"

#include <stdbool.h>

#include "server/session/domain.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/standby/residue.h"
#include "server/standby/swap.h"
#include "server/worker/worker.h"

#define RESIDUE                                                                                              \
	"values that its kernels have left are in its executor's context alone (variables that cannot "      \
	"move, or malloc in kernels)"
#define OBJECTS	  "it has texture objects: an executor that starts would make them while their memory is away"
#define IMMOVABLE "an executor that starts cannot have its modules or memory as they are (the log says why)"

/* True if a standby that has answered everything could not have all of the session. */
static bool is_immovable(const struct session *session)
{
	const struct worker *worker;

	TAILQ_FOREACH (worker, &session->domain->workers, link)
		if (worker->state == WORKER_WARM && worker_is_immovable(worker, session->number))
			return true;
	return session->mirroring == SESSION_LEFT_OUT;
}

/* The driver may refuse an object over memory that is not mapped. */
static bool has_objects(const struct session *session)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &session->holdings.entries, link)
		if (entry->type == WIRE_MAKE_OBJECT)
			return true;
	return false;
}

const char *leaving_refuses(const struct session *session)
{
	const char *text;

	if (!session_is_live(session))
		return NULL;
	text = swap_refuses(session);
	if (!text && residue_is_there(session))
		text = RESIDUE;
	if (!text && has_objects(session))
		text = OBJECTS;
	if (!text && is_immovable(session))
		text = IMMOVABLE;
	return text;
}

uint64_t leaving_bytes(const struct session *session)
{
	bool is_here = session_is_live(session) && session->memory == SESSION_MEMORY_HERE;

	return is_here ? holdings_chunk_bytes(&session->holdings) : 0;
}
