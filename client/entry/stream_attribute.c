// Entry points: attributes of streams. All of them but the priority are hints: about caches, the
// way to wait, and fences between writes. The library keeps them only for the program to read;
// kernels run without them. Two threads that set an attribute of the same stream at once leave
// either value.

#include "client/entry/entry.h"

#include <string.h>

#include "client/state/stream.h"
#include "client/submit/encode.h"

struct attributes {
	uint64_t stream; /* the owner: stream ids are never used again */
	CUlaunchAttributeValue window, policy, domain, map;
};

/* The driver's answer for a stream that waits as its context does. */
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
	CUresult r = enter_facts(handle, per_thread, &stream);

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

static bool is_policy(CUsynchronizationPolicy policy)
{
	return policy >= CU_SYNC_POLICY_AUTO && policy <= CU_SYNC_POLICY_BLOCKING_SYNC;
}

static CUresult set(
	CUstream handle, CUlaunchAttributeID id, const CUlaunchAttributeValue *value, bool per_thread)
{
	CUlaunchAttributeValue *kept;
	struct client_stream *stream;
	CUresult r = enter_facts(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
		stream_set_priority(stream, value->priority);
		return CUDA_SUCCESS;
	}
	kept = value_of(stream, id);
	if (!kept || !encode_is_value(id, value) ||
		(id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY && !is_policy(value->syncPolicy)))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(kept, value, encode_value_bytes(id));
	return CUDA_SUCCESS;
}

ENTRY_PAIR(cuStreamSetAttribute, _ptsz, set,
	(CUstream stream, CUlaunchAttributeID id, const CUlaunchAttributeValue *value), stream, id, value)

static CUresult copy(CUstream to, CUstream from, bool per_thread)
{
	struct client_stream *dst, *src;
	CUresult r = enter_facts(to, per_thread, &dst);

	if (r == CUDA_SUCCESS)
		r = stream_resolve(from, per_thread, &src);
	if (r != CUDA_SUCCESS)
		return r;
	*attributes_of(dst) = *attributes_of(src);
	table[dst->slot].stream = dst->id;
	stream_set_priority(dst, src->priority);
	return CUDA_SUCCESS;
}

ENTRY_PAIR(cuStreamCopyAttributes, _ptsz, copy, (CUstream to, CUstream from), to, from)
