// See migrate.h.

#include "server/control/migrate.h"

#include <stdio.h>
#include <stdlib.h>

#include "protocol/cuda_abi.h"
#include "server/control/caller.h"
#include "server/daemon/depart.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/session.h"

/* Return: false after an answer */
static bool find_device(struct caller *caller, uint32_t *ret_device)
{
	const struct daemon *daemon = caller->daemon;
	const char *word = caller->request.arguments[1];
	const unsigned devices = daemon_devices(daemon);
	char *end, text[128];
	unsigned long number = strtoul(word, &end, 10);

	if (*word < '0' || *word > '9' || *end || number >= devices)
		snprintf(text, sizeof(text),
			"there is no device %.32s: the service has %u, by their numbers from 0", word,
			devices);
	else if (number == daemon->heritage->number)
		snprintf(text, sizeof(text), "the session is on device %lu already", number);
	else {
		*ret_device = (uint32_t)number;
		return true;
	}
	caller_refuse(caller, caller->request.id, CUDA_ERROR_INVALID_DEVICE, text);
	return false;
}

void migrate_answer(struct caller *caller)
{
	struct session *session = caller_find_living(caller, true);
	uint32_t device;

	if (!session || !find_device(caller, &device))
		return;
	if (caller->awaited_id || !caller->request.id) {
		caller_refuse(caller, caller->request.id, CUDA_ERROR_ILLEGAL_STATE,
			"an order before this one is under way");
		return;
	}
	caller->awaited_id = caller->request.id;
	depart_begin(session, device, caller_settle, caller);
}
