// See residue.h. Contents copied into a variable need its address first, which the daemon records;
// the executor marks kernels that may write there before it issues them (executor/remains.h).

#include "server/standby/residue.h"

#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/session/window.h"

bool residue_is_in_context(const struct session *session, const struct holding *global)
{
	return global->global[0] - session->window >= WINDOW_DEVICE_BYTES;
}

bool residue_is_there(const struct session *session)
{
	const struct holding *entry;

	for (uint32_t i = 0; i < SHM_MODULES / 64; i++)
		if (word_acquire(&session->view.server->ran[i]))
			return true;
	TAILQ_FOREACH (entry, &session->holdings.entries, link)
		if (entry->type == WIRE_FIND_GLOBAL && residue_is_in_context(session, entry))
			return true;
	return false;
}
