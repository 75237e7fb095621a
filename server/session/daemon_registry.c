// Look-up of sessions and domains by number, the record of the daemon's own numbers, and the names
// of its device. See daemon.h.

#include "server/session/daemon.h"

#include "protocol/place.h"
#include "protocol/uuid.h"
#include "server/config/config.h"
#include "server/config/devices.h"
#include "server/holder/store.h"
#include "server/role.h"
#include "server/session/domain.h"
#include "server/session/listener.h"
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
		.counters = daemon->counters};

	if (daemon->listener)
		listener_keys(daemon->listener, &kept.listener, &kept.listener_lock);
	daemon->record = store_put(daemon->store, daemon->record, RECORD_SERVICE, 0, &kept, sizeof(kept));
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
