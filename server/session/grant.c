// See grant.h.

#include "server/session/grant.h"

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/config/config.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/partition.h"
#include "shm/layout.h"

uint64_t grant_memory_wish(
	const struct daemon *daemon, const struct domain *domain, const struct wire_hello *hello)
{
	return terms_lower(
		hello->memory_limit, terms_lower(domain ? domain->memory_limit : 0, daemon->memory_default));
}

uint64_t grant_sm_wish(
	const struct daemon *daemon, const struct domain *domain, const struct wire_hello *hello)
{
	return terms_lower(
		hello->sm_percent, terms_lower(domain ? domain->sm_percent : 0, daemon->sm_default));
}

uint64_t grant_class_wish(const struct daemon *daemon, const struct wire_hello *hello)
{
	return hello->priority ? CONFIG_CLASS_OFFLINE : daemon->class_default;
}

/* The domain that programs of a user share. */
static const struct domain *find_shared(const struct daemon *daemon, uid_t uid)
{
	const struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->use == DOMAIN_SHARED && domain->identity.uid == uid)
			return domain;
	return NULL;
}

void grant_terms(const struct daemon *daemon, const struct subject *subject, const struct wire_hello *hello,
	struct terms *ret_terms)
{
	const struct domain *domain = find_shared(daemon, subject->uid);

	terms_find(&daemon->rules, subject, ret_terms);
	terms_tighten(ret_terms, grant_memory_wish(daemon, domain, hello),
		grant_sm_wish(daemon, domain, hello), grant_class_wish(daemon, hello));
}

/* Units that a session may use for certain: offline, the rest beside the part for online
 * sessions. */
static uint32_t units_for(const struct daemon *daemon, const struct terms *terms, uint32_t number)
{
	uint64_t partition = partition_units(daemon, number);
	uint32_t rest = BACKEND_SMS_UNITS(partition_rest(daemon));

	if (partition)
		return BACKEND_SMS_UNITS(partition);
	return terms->class == CONFIG_CLASS_OFFLINE ? rest - rest / SHM_SHARE_ONLINE_PART : rest;
}

/* True if the terms allow fewer than all multiprocessors. */
static bool is_capped(const struct terms *terms)
{
	return terms_lower(100, terms->sm_percent) != 100;
}

uint32_t grant_sms(const struct daemon *daemon, const struct terms *terms, uint32_t partition)
{
	const struct backend_device *device = &daemon->device;
	uint32_t all = (uint32_t)device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
	uint32_t room = units_for(daemon, terms, partition), units = room;

	if (!device->sm_granule || (!is_capped(terms) && room == device->sm_units))
		return all;
	if (is_capped(terms))
		units = (uint32_t)(all * terms->sm_percent / 100) / device->sm_granule;
	units = units < room ? units : room;
	return units ? units * device->sm_granule : device->sm_granule;
}
