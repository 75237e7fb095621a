// See seen.h. The document is flat but for its list, so that the library needs no parser of JSON;
// names are part of the interface between different versions: added to, never changed.
//
//   name, uuid, pci		texts: of the device
//   number, devices		place among the service's devices, and the number of these
//   peers			text: two hexadecimal digits for each device of the service, by its
//				number: as Device.peers (protocol/control.fbs)
//   driver_version		of CUDA, as in cuDriverGetVersion()
//   major, minor		compute capability
//   total_bytes		most device memory for the process, or for a program that starts now
//   used_bytes			device memory of the process; without a session, the sum of `processes`
//   processes			a list: programs of the user, or for root and the service's user all
//     pid			as seen by the service
//     memory_bytes

#include "server/control/seen.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "protocol/uuid.h"
#include "server/control/document.h"
#include "server/log.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/daemon/quota.h"
#include "server/session/grant.h"
#include "server/session/guarantee.h"
#include "server/session/session.h"
#include "server/session/subject.h"

static bool is_program(const struct session *session)
{
	return session->state != SESSION_CLOSING && !session_is_elsewhere(session) && session->pid > 0;
}

/* Return: NULL: the process has no session */
static const struct session *find_own(const struct daemon *daemon, uid_t uid, pid_t pid)
{
	const struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (is_program(session) && session->uid == uid && session->pid == pid)
			return session;
	return NULL;
}

/* The limit of a program that begins now. */
static uint64_t limit_of_new(const struct daemon *daemon, uid_t uid, pid_t pid)
{
	const struct wire_hello hello = {0};
	struct subject subject;
	struct terms terms;

	subject_read(uid, pid, &subject);
	grant_terms(daemon, &subject, &hello, &terms);
	return terms.memory_limit;
}

/* @ret_used: their memory in all, bytes */
static json_t *list_processes(const struct daemon *daemon, uid_t uid, uint64_t *ret_used)
{
	const bool all = quota_is_operator(uid);
	const struct session *session;
	json_t *list = json_array();

	*ret_used = 0;
	TAILQ_FOREACH (session, &daemon->sessions, link) {
		if (!is_program(session) || (!all && session->uid != uid))
			continue;
		*ret_used += session->holdings.memory_bytes;
		json_array_append_new(
			list, json_pack("{sI sI}", "pid", (json_int_t)session->pid, "memory_bytes",
				      (json_int_t)session->holdings.memory_bytes));
	}
	return list;
}

static json_t *peers_json(const struct daemon *daemon)
{
	char text[2 * PLACE_DEVICES + 1] = "";

	for (unsigned i = 0; i < daemon_devices(daemon); i++)
		snprintf(text + 2 * i, 3, "%02x", daemon->heritage->peers[i]);
	return json_string(text);
}

char *seen_json(const struct daemon *daemon, uid_t uid, pid_t pid)
{
	const struct backend_device *device = &daemon->device;
	const int32_t *attributes = device->attributes;
	const struct session *own = find_own(daemon, uid, pid);
	char uuid[UUID_TEXT], name[sizeof(device->name)];
	uint64_t used, total;
	json_t *processes, *json;

	if (!daemon->device_known)
		return NULL;
	processes = list_processes(daemon, uid, &used);
	total = terms_lower(guarantee_device_bytes(daemon),
		own ? own->terms.memory_limit : limit_of_new(daemon, uid, pid));
	daemon_uuid(daemon, uuid);
	/* Comes from an executor. */
	snprintf(name, sizeof(name), "%s", device->name);
	log_clean(name);
	json = json_pack("{ss ss si si si sI sI so}", "name", name, "uuid", uuid, "driver_version",
		(int)device->driver_version, "major",
		(int)attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR], "minor",
		(int)attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR], "total_bytes",
		(json_int_t)total, "used_bytes", (json_int_t)(own ? own->holdings.memory_bytes : used),
		"processes", processes);
	if (json) {
		json_object_set_new(json, "number", json_integer(daemon->heritage->number));
		json_object_set_new(json, "devices", json_integer(daemon_devices(daemon)));
		json_object_set_new(json, "peers", peers_json(daemon));
		json_object_set_new(json, "pci",
			json_sprintf("%04x:%02x:%02x.0",
				(unsigned)attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID],
				(unsigned)attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID],
				(unsigned)attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]));
	}
	return document_text(json);
}
