// Entry points: attributes of streams.

#include "client/entry/entry.h"

#include "client/state/stream.h"
#include "client/state/stream_attribute.h"

static CUresult get(CUstream handle, CUlaunchAttributeID id, CUlaunchAttributeValue *value, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_facts(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	return value && stream_attribute_get(stream, id, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY_PAIR(cuStreamGetAttribute, _ptsz, get,
	(CUstream stream, CUlaunchAttributeID id, CUlaunchAttributeValue *value), stream, id, value)

static CUresult set(
	CUstream handle, CUlaunchAttributeID id, const CUlaunchAttributeValue *value, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_facts(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (value && id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
		stream_set_priority(stream, value->priority);
		return CUDA_SUCCESS;
	}
	return value && stream_attribute_set(stream, id, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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
	stream_attribute_copy(dst, src);
	stream_set_priority(dst, src->priority);
	return CUDA_SUCCESS;
}

ENTRY_PAIR(cuStreamCopyAttributes, _ptsz, copy, (CUstream to, CUstream from), to, from)
