// Entry points: attributes of streams. All of them are hints: about caches, the way to wait, and
// fences between writes. The library keeps them only for the program to read; kernels run without
// them. Two threads that set an attribute of the same stream at once leave either value.

#include "client/entry/entry.h"

#include "client/state/device.h"
#include "client/state/stream.h"

struct attributes {
	uint64_t stream; /* the owner: stream ids are never used again */
	CUlaunchAttributeValue window, policy, domain, map;
};

static struct attributes table[SHM_STREAMS];

static struct attributes *attributes_of(const struct client_stream *stream)
{
	struct attributes *attributes = &table[stream->slot];

	if (attributes->stream != stream->id) {
		*attributes = (struct attributes){.stream = stream->id};
		attributes->policy.syncPolicy = CU_SYNC_POLICY_AUTO;
		attributes->map.memSyncDomainMap.remote = 1;
	}
	return attributes;
}

/* NULL: streams have no such attribute. */
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
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	kept = value_of(stream, id);
	if (!value || (!kept && id != CU_LAUNCH_ATTRIBUTE_PRIORITY))
		return CUDA_ERROR_INVALID_VALUE;
	if (kept)
		*value = *kept;
	else
		value->priority = stream->priority;
	return CUDA_SUCCESS;
}

ENTRY_PAIR(cuStreamGetAttribute, _ptsz, get,
	(CUstream stream, CUlaunchAttributeID id, CUlaunchAttributeValue *value), stream, id, value)

/* False for a value that the device would refuse. */
static bool is_possible(CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	const struct client_device *device = device_get(device_own());
	int most = 0;

	if (id != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || !device ||
		device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, &most) !=
			CUDA_SUCCESS)
		return true;
	return most <= 0 || value->accessPolicyWindow.num_bytes <= (size_t)most;
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
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) /* fixed at the creation of the service's stream */
		return value->priority == stream->priority ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
	kept = value_of(stream, id);
	if (!kept || !is_possible(id, value))
		return CUDA_ERROR_INVALID_VALUE;
	*kept = *value;
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
