// Entry points: attributes of streams. All of them but the priority are hints: about caches, the
// way to wait, and fences between writes. The library keeps them only for the program to read;
// kernels run without them. Two threads that set an attribute of the same stream at once leave
// either value.

#include "client/entry/entry.h"

#include <limits.h>
#include <string.h>

#include "client/state/device.h"
#include "client/state/stream.h"
#include "client/submit/encode.h"

struct attributes {
	uint64_t stream; /* the owner: stream ids are never used again */
	CUlaunchAttributeValue window, policy, domain, map;
};

/* What the driver says of a stream that waits as its context does. */
#define POLICY_OF_CONTEXT ((CUsynchronizationPolicy)-1)

static struct attributes table[SHM_STREAMS];

static struct attributes *attributes_of(const struct client_stream *stream)
{
	struct attributes *attributes = &table[stream->slot];

	if (attributes->stream != stream->id) {
		*attributes = (struct attributes){.stream = stream->id};
		attributes->policy.syncPolicy = POLICY_OF_CONTEXT;
		attributes->map.memSyncDomainMap.remote = 1;
	}
	return attributes;
}

/* NULL: streams keep no such attribute. */
static CUlaunchAttributeValue *value_of(const struct client_stream *stream, CUlaunchAttributeID id)
{
	struct attributes *attributes = attributes_of(stream);

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

static CUresult get(CUstream handle, CUlaunchAttributeID id, CUlaunchAttributeValue *value, bool per_thread)
{
	const CUlaunchAttributeValue *kept;
	CUlaunchAttributeValue priority;
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	priority.priority = stream->priority;
	kept = id == CU_LAUNCH_ATTRIBUTE_PRIORITY ? &priority : value_of(stream, id);
	if (!value || !kept)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(value, kept, encode_value_bytes(id));
	return CUDA_SUCCESS;
}

ENTRY_PAIR(cuStreamGetAttribute, _ptsz, get,
	(CUstream stream, CUlaunchAttributeID id, CUlaunchAttributeValue *value), stream, id, value)

static unsigned int limit_of(CUdevice_attribute attribute, unsigned int otherwise)
{
	const struct client_device *device = device_get(device_own());
	int most = 0;

	if (device && device_attribute(device, (int)attribute, &most) == CUDA_SUCCESS && most > 0)
		return (unsigned int)most;
	return otherwise;
}

static bool is_window(const CUaccessPolicyWindow *window)
{
	return window->num_bytes <= limit_of(CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, UINT_MAX) &&
	       window->hitRatio >= 0 && window->hitRatio <= 1 &&
	       (unsigned int)window->hitProp <= CU_ACCESS_PROPERTY_PERSISTING &&
	       (unsigned int)window->missProp <= CU_ACCESS_PROPERTY_STREAMING;
}

static bool is_map(const CUlaunchMemSyncDomainMap *map)
{
	unsigned int count = limit_of(CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1);

	return map->default_ < count && map->remote < count;
}

/* False for a value that the driver refuses. */
static bool is_possible(CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	switch ((int)id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		return is_window(&value->accessPolicyWindow);
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		return value->syncPolicy >= CU_SYNC_POLICY_AUTO &&
		       value->syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		return (unsigned int)value->memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
	default:
		return is_map(&value->memSyncDomainMap);
	}
}

static CUresult set(
	CUstream handle, CUlaunchAttributeID id, const CUlaunchAttributeValue *value, bool per_thread)
{
	CUlaunchAttributeValue *kept;
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
		stream_set_priority(stream, value->priority);
		return CUDA_SUCCESS;
	}
	kept = value_of(stream, id);
	if (!kept || !is_possible(id, value))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(kept, value, encode_value_bytes(id));
	return CUDA_SUCCESS;
}

ENTRY_PAIR(cuStreamSetAttribute, _ptsz, set,
	(CUstream stream, CUlaunchAttributeID id, const CUlaunchAttributeValue *value), stream, id, value)

static CUresult copy(CUstream to, CUstream from, bool per_thread)
{
	struct client_stream *dst, *src;
	CUresult r = enter_stream(to, per_thread, &dst);

	if (r == CUDA_SUCCESS)
		r = stream_resolve(from, per_thread, &src);
	if (r != CUDA_SUCCESS)
		return r;
	*attributes_of(dst) = *attributes_of(src);
	table[dst->slot].stream = dst->id;
	return CUDA_SUCCESS;
}

ENTRY_PAIR(cuStreamCopyAttributes, _ptsz, copy, (CUstream to, CUstream from), to, from)
