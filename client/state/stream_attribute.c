// See stream_attribute.h.

#include "client/state/stream_attribute.h"

#include <stdint.h>
#include <string.h>

#include "client/state/stream_slot.h"
#include "client/submit/encode.h"

/* The driver's answer for a stream that waits as its context does. */
#define POLICY_OF_CONTEXT ((CUsynchronizationPolicy)-1)

struct attributes {
	uint64_t stream; /* the owner: stream ids are never used again */
	CUlaunchAttributeValue window, policy, domain, map;
};

static struct attributes table[SHM_STREAMS];

static const struct attributes fresh = {
	.policy.syncPolicy = POLICY_OF_CONTEXT,
	.map.memSyncDomainMap.remote = 1,
};

static struct attributes *attributes_of(const struct client_stream *stream)
{
	struct attributes *attributes = &table[stream->slot];

	if (attributes->stream != stream->id) {
		*attributes = fresh;
		attributes->stream = stream->id;
	}
	return attributes;
}

/* Of an attribute other than the priority. NULL: streams have no such one. */
static const CUlaunchAttributeValue *value_in(const struct attributes *attributes, CUlaunchAttributeID id)
{
	switch ((int)id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		return &attributes->window;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		return &attributes->policy;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		return &attributes->domain;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		return &attributes->map;
	default:
		return NULL;
	}
}

bool stream_attribute_get(
	const struct client_stream *stream, CUlaunchAttributeID id, CUlaunchAttributeValue *ret_value)
{
	const CUlaunchAttributeValue *kept = value_in(attributes_of(stream), id);

	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		ret_value->priority = stream->priority;
	else if (kept)
		memcpy(ret_value, kept, encode_value_bytes(id));
	return id == CU_LAUNCH_ATTRIBUTE_PRIORITY || kept;
}

static bool is_policy(CUsynchronizationPolicy policy)
{
	return policy >= CU_SYNC_POLICY_AUTO && policy <= CU_SYNC_POLICY_BLOCKING_SYNC;
}

bool stream_attribute_set(
	struct client_stream *stream, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	CUlaunchAttributeValue *kept = (CUlaunchAttributeValue *)value_in(attributes_of(stream), id);

	if (!kept || !encode_is_value(id, value) ||
		(id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY && !is_policy(value->syncPolicy)))
		return false;
	memcpy(kept, value, encode_value_bytes(id));
	return true;
}

void stream_attribute_copy(struct client_stream *to, const struct client_stream *from)
{
	*attributes_of(to) = *attributes_of(from);
	table[to->slot].stream = to->id;
}

bool stream_attribute_differs(const struct client_stream *stream, CUlaunchAttributeID id)
{
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		return stream->priority != 0;
	return memcmp(value_in(attributes_of(stream), id), value_in(&fresh, id), encode_value_bytes(id)) != 0;
}
