// Look-up of sessions and domains by number, the record of the daemon's own numbers, and the names
// of its device. See daemon.h.

#include "server/session/daemon.h"

#include <signal.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "protocol/place.h"
#include "protocol/uuid.h"
#include "server/config/config.h"
#include "server/config/devices.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/role.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/session.h"

struct session *daemon_find_session(const struct daemon *daemon, uint64_t number)
{
	struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (session->number == number)
			break;
	return session;
}

struct domain *daemon_find_domain(const struct daemon *daemon, uint32_t number)
{
	struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->number == number)
			break;
	return domain;
}

bool daemon_has_failed(const struct daemon *daemon)
{
	return daemon->health.state == DEVICE_FAILED;
}

bool daemon_is_drained(const struct daemon *daemon)
{
	return daemon->health.state == DEVICE_DRAINED;
}

uint32_t daemon_capability(const struct daemon *daemon)
{
	const struct backend_device *device = &daemon->device;

	return (uint32_t)(10 * device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] +
			  device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]);
}

bool daemon_offers_device(const struct daemon *daemon)
{
	return daemon->health.state != DEVICE_DRAINING && daemon->health.state != DEVICE_DRAINED;
}

void daemon_save(struct daemon *daemon)
{
	struct service_record record;

	/* Records are compared, with what is between the fields. */
	memset(&record, 0, sizeof(record));
	record.next_worker = daemon->crew.latest;
	record.epoch = daemon->crew.epoch;
	record.ready = daemon->phase != DAEMON_STARTS;
	memcpy(record.head, daemon, sizeof(record.head));
	daemon->record = store_put(daemon->store, daemon->record, RECORD_SERVICE, 0, &record, sizeof(record));
}

/* By a signal to the holder, so that a later life of the daemon ends, too. */
void daemon_quit(struct daemon *daemon, uint64_t seconds)
{
	daemon->stop_seconds = seconds;
	if (!daemon->holder || kill(getppid(), SIGTERM) < 0)
		due_daemon(daemon, DAEMON_DUE_STOP);
}

bool daemon_ends(const struct daemon *daemon)
{
	return daemon->phase == DAEMON_LEAVES || daemon->due & DAEMON_DUE_LEAVE;
}

void daemon_fail(struct daemon *daemon, const char *reason)
{
	if (daemon_ends(daemon))
		return;
	log_error("%s", reason);
	daemon->exit_code = 1;
	due_daemon(daemon, DAEMON_DUE_LEAVE);
}

unsigned daemon_devices(const struct daemon *daemon)
{
	return daemon->heritage->count ? daemon->heritage->count : 1;
}

void daemon_socket(const struct daemon *daemon, char *path)
{
	place_of_device(daemon->config->socket, daemon->heritage->number, path);
}

void daemon_uuid(const struct daemon *daemon, char *text)
{
	uint8_t uuid[16];

	/* Known from the start; an executor reports the same UUID later. */
	devices_uuid(daemon->heritage->uuid, daemon->heritage->copy, uuid);
	uuid_text(uuid, text);
}

bool daemon_is_named(const struct daemon *daemon, const char *word)
{
	char uuid[UUID_TEXT];
	uint64_t number;

	if (config_parse_number(word, false, &number) && number == daemon->heritage->number)
		return true;
	daemon_uuid(daemon, uuid);
	return strlen(word) > strlen("GPU-") && !strncasecmp(word, uuid, strlen(word));
}
