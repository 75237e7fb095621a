// Entry points: fills. A fill without a stream goes to the default stream; the call returns once
// the fill is submitted.

#include "client/entry/entry.h"

#include "client/graph/capture.h"
#include "client/stage/copy.h"
#include "client/state/stream.h"

static CUresult start(const struct copy_fill *what, CUstream handle, unsigned int how, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && capture_is_on(stream))
		return what->width == 0 || what->height == 0 ? CUDA_SUCCESS : capture_set(what, stream, how);
	return r == CUDA_SUCCESS ? copy_set(what, stream, how) : r;
}

static CUresult fill(CUdeviceptr dst, size_t pitch, unsigned int value, unsigned int element_bytes,
	size_t width, size_t height, bool per_thread)
{
	return start(
		&(struct copy_fill){dst, pitch, width, height, value, element_bytes}, NULL, 0, per_thread);
}

static CUresult fill_async(CUdeviceptr dst, size_t pitch, unsigned int value, unsigned int element_bytes,
	size_t width, size_t height, CUstream stream, bool per_thread)
{
	return start(&(struct copy_fill){dst, pitch, width, height, value, element_bytes}, stream, COPY_ASYNC,
		per_thread);
}

/*
 * The eight entry points of an element type: one and two dimensions, on the default and on a given
 * stream, both meanings of stream 0.
 */
#define FILLS(bits, type)                                                                                    \
	ENTRY_PAIR(cuMemsetD##bits##_v2, _ptds, fill, (CUdeviceptr dst, type value, size_t n), dst, 0,       \
		value, bits / 8, n, 1)                                                                       \
	ENTRY_PAIR(cuMemsetD##bits##Async, _ptsz, fill_async,                                                \
		(CUdeviceptr dst, type value, size_t n, CUstream stream), dst, 0, value, bits / 8, n, 1,     \
		stream)                                                                                      \
	ENTRY_PAIR(cuMemsetD2D##bits##_v2, _ptds, fill,                                                      \
		(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height), dst, pitch, value, \
		bits / 8, width, height)                                                                     \
	ENTRY_PAIR(cuMemsetD2D##bits##Async, _ptsz, fill_async,                                              \
		(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream),   \
		dst, pitch, value, bits / 8, width, height, stream)

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)
