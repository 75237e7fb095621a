// See devices.h.

#include "server/control/devices.h"

#include <stdio.h>
#include <stdlib.h>

#include "protocol/cuda_abi.h"
#include "server/control/caller.h"
#include "server/daemon/depart.h"
#include "server/daemon/device_drain.h"
#include "server/daemon/quota.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/session.h"
#include "server/session/userlog.h"

/* The caller waits from now on. Return: false after a refusal */
static bool accept_order(struct caller *caller)
{
	const struct caller_request *request = &caller->request;
	char text[128];

	if (!quota_is_operator(caller->guest.uid)) {
		caller_refuse(caller, request->id, CUDA_ERROR_NOT_PERMITTED,
			"only root and the service's own user may drain and refill a device");
		return false;
	}
	if (request->argument_count > 1 || caller->awaited_id || !request->id) {
		caller_refuse(caller, request->id, CUDA_ERROR_INVALID_VALUE,
			"it takes nothing, or the device, and one order at a time");
		return false;
	}
	if (request->argument_count && !daemon_is_named(caller->daemon, request->arguments[0])) {
		snprintf(text, sizeof(text), "device %s is not this one, which has number %u",
			request->arguments[0], caller->daemon->heritage->number);
		caller_refuse(caller, request->id, CUDA_ERROR_INVALID_DEVICE, text);
		return false;
	}
	userlog_event(caller->daemon, caller->guest.uid, USERLOG_operator, LOG_LEVEL_INFO,
		"%s: an operator of uid %lld", request->command, (long long)caller->guest.uid);
	caller->awaited_id = request->id;
	return true;
}

void drain_answer_drain(struct caller *caller)
{
	if (accept_order(caller))
		device_drain_begin(caller->daemon, caller_settle, caller);
}

void drain_answer_refill(struct caller *caller)
{
	if (accept_order(caller))
		device_drain_refill(caller->daemon, caller_settle, caller);
}

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
