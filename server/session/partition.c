// SM partitions. See partition.h. A partition gets the highest free units and gives back its lowest
// units, so that other partitions keep theirs.

#include "server/session/partition.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "protocol/uuid.h"
#include "server/session/daemon.h"
#include "server/session/session.h"

void partition_name(const struct partition *partition, char ret_name[PARTITION_NAME])
{
	snprintf(ret_name, PARTITION_NAME, "p%" PRIu32, partition->number);
}

struct partition *partition_find(struct daemon *daemon, const char *name)
{
	char uuid[UUID_TEXT], own[PARTITION_NAME];
	const size_t length = sizeof(uuid) - 1;

	daemon_uuid(daemon, uuid);
	if (!strncasecmp(name, uuid, length) && name[length] == '/')
		name += length + 1;
	for (uint32_t i = 0; i < daemon->partitions.count; i++) {
		partition_name(&daemon->partitions.all[i], own);
		if (!strcmp(name, own) || (*name && !strcmp(name, daemon->partitions.all[i].label)))
			return &daemon->partitions.all[i];
	}
	return NULL;
}

uint64_t partition_units(const struct daemon *daemon, uint32_t number)
{
	const struct partitions *partitions = &daemon->partitions;

	for (uint32_t i = 0; i < partitions->count; i++)
		if (partitions->all[i].number == number)
			return partitions->all[i].units;
	return 0;
}

uint64_t partition_rest(const struct daemon *daemon)
{
	uint64_t rest = BACKEND_SMS(0, daemon->device.sm_units);

	for (uint32_t i = 0; i < daemon->partitions.count; i++)
		rest &= ~daemon->partitions.all[i].units;
	return rest;
}

uint32_t partition_room(const struct daemon *daemon)
{
	uint32_t rest = BACKEND_SMS_UNITS(partition_rest(daemon));

	return rest ? rest - 1 : 0;
}

uint32_t partition_sessions(const struct daemon *daemon, uint32_t number)
{
	const struct session *session;
	uint32_t count = 0;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		count += session->partition == number && session->state != SESSION_CLOSING;
	return count;
}

void partition_resize(struct daemon *daemon, struct partition *partition, uint32_t units)
{
	while (BACKEND_SMS_UNITS(partition->units) > units)
		partition->units &= partition->units - 1;
	while (BACKEND_SMS_UNITS(partition->units) < units && partition_room(daemon))
		partition->units |= UINT64_C(1) << (63 - __builtin_clzll(partition_rest(daemon)));
}

bool partition_is_label(const char *text)
{
	size_t length = strlen(text), number = *text == 'p' ? strspn(text + 1, "0123456789") : 0;

	return length && length < PARTITION_LABEL &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == length && number + 1 != length;
}

struct partition *partition_add(struct daemon *daemon, uint32_t units, const char *label)
{
	struct partitions *partitions = &daemon->partitions;
	struct partition *partition;

	if (partitions->count == PARTITIONS_MAX)
		return NULL;
	partition = &partitions->all[partitions->count++];
	*partition = (struct partition){.number = ++partitions->latest};
	snprintf(partition->label, sizeof(partition->label), "%s", label);
	partition_resize(daemon, partition, units);
	return partition;
}

void partition_remove(struct daemon *daemon, struct partition *partition)
{
	struct partition *last = &daemon->partitions.all[--daemon->partitions.count];

	memmove(partition, partition + 1, (size_t)(last - partition) * sizeof(*partition));
}
