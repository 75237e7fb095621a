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
#include "server/session/records.h"
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

bool daemon_offers_device(const struct daemon *daemon)
{
	return daemon->health.state != DEVICE_DRAINING && daemon->health.state != DEVICE_DRAINED;
}

void daemon_keep(struct daemon *daemon)
{
	struct kept_service kept = {.next_session = daemon->next_session,
		.started_us = daemon->started_us,
		.next_worker = daemon->crew.latest,
		.next_domain = daemon->next_domain,
		.keeper_number = daemon->keeper_number,
		.epoch = daemon->crew.epoch,
		.ready = daemon->ready,
		.health = daemon->health,
		.memory_default = daemon->memory_default,
		.sm_default = daemon->sm_default,
		.class_default = daemon->class_default,
		.partitions = daemon->partitions,
		.stop_seconds = daemon->stop_seconds,
		.counters = daemon->counters,
		.listener = daemon->listener_keys.socket,
		.listener_lock = daemon->listener_keys.lock};

	daemon->record = store_put(daemon->store, daemon->record, RECORD_SERVICE, 0, &kept, sizeof(kept));
}

void daemon_number_worker(struct daemon *daemon)
{
	daemon->crew.latest++;
	daemon_keep(daemon);
}

/* By a signal to the holder, so that a later life of the daemon ends, too. */
void daemon_quit(struct daemon *daemon, uint64_t seconds)
{
	daemon->stop_seconds = seconds;
	daemon_keep(daemon);
	if (!daemon->holder || kill(getppid(), SIGTERM) < 0)
		due_daemon(daemon, DAEMON_DUE_STOP);
}

bool daemon_ends(const struct daemon *daemon)
{
	return daemon->leaving || daemon->due & DAEMON_DUE_LEAVE;
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

	devices_uuid(daemon->device.uuid, daemon->heritage->copy, uuid);
	uuid_text(uuid, text);
}

bool daemon_is_named(const struct daemon *daemon, const char *word)
{
	char uuid[UUID_TEXT];
	uint64_t number;

	if (config_parse_number(word, false, &number) && number == daemon->heritage->number)
		return true;
	daemon_uuid(daemon, uuid);
	return daemon->device_known && strlen(word) > strlen("GPU-") &&
	       !strncasecmp(word, uuid, strlen(word));
}
