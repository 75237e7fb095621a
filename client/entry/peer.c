// Entry points: peers. A program sees a single device, which is no peer of itself: access to
// another context of the same device needs no permission and can be given none. Copies "between"
// contexts are copies on the device.

#include "client/entry/entry.h"

#include "client/state/context.h"
#include "client/state/device.h"

static CUresult enter(CUcontext peer)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return context_is_live(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUDA_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUresult r = enter(peer);

	if (r != CUDA_SUCCESS)
		return r;
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUDA_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	CUresult r = enter(peer);

	return r == CUDA_SUCCESS ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : r;
}

/* The context of a memory side must be live, or NULL for the current context; arrays have their
 * own. */
static bool are_contexts(const CUDA_MEMCPY3D_PEER *copy)
{
	return (copy->srcMemoryType != CU_MEMORYTYPE_DEVICE || !copy->srcContext ||
		       context_is_live(copy->srcContext)) &&
	       (copy->dstMemoryType != CU_MEMORYTYPE_DEVICE || !copy->dstContext ||
		       context_is_live(copy->dstContext));
}

static CUDA_MEMCPY3D general_of(const CUDA_MEMCPY3D_PEER *copy)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = copy->srcXInBytes,
		.srcY = copy->srcY,
		.srcZ = copy->srcZ,
		.srcLOD = copy->srcLOD,
		.srcMemoryType = copy->srcMemoryType,
		.srcHost = copy->srcHost,
		.srcDevice = copy->srcDevice,
		.srcArray = copy->srcArray,
		.srcPitch = copy->srcPitch,
		.srcHeight = copy->srcHeight,
		.dstXInBytes = copy->dstXInBytes,
		.dstY = copy->dstY,
		.dstZ = copy->dstZ,
		.dstLOD = copy->dstLOD,
		.dstMemoryType = copy->dstMemoryType,
		.dstHost = copy->dstHost,
		.dstDevice = copy->dstDevice,
		.dstArray = copy->dstArray,
		.dstPitch = copy->dstPitch,
		.dstHeight = copy->dstHeight,
		.WidthInBytes = copy->WidthInBytes,
		.Height = copy->Height,
		.Depth = copy->Depth,
	};
}

static CUresult read_copy(const CUDA_MEMCPY3D_PEER *copy, CUDA_MEMCPY3D *ret_copy)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	if (!are_contexts(copy))
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_copy = general_of(copy);
	return CUDA_SUCCESS;
}

static CUresult copy_now(const CUDA_MEMCPY3D_PEER *given, bool per_thread)
{
	CUDA_MEMCPY3D copy;
	CUresult r = read_copy(given, &copy);

	if (r != CUDA_SUCCESS)
		return r;
	return per_thread ? cuMemcpy3D_v2_ptds(&copy) : cuMemcpy3D_v2(&copy);
}

static CUresult copy_later(const CUDA_MEMCPY3D_PEER *given, CUstream stream, bool per_thread)
{
	CUDA_MEMCPY3D copy;
	CUresult r = read_copy(given, &copy);

	if (r != CUDA_SUCCESS)
		return r;
	return per_thread ? cuMemcpy3DAsync_v2_ptsz(&copy, stream) : cuMemcpy3DAsync_v2(&copy, stream);
}

ENTRY_PAIR(cuMemcpy3DPeer, _ptds, copy_now, (const CUDA_MEMCPY3D_PEER *copy), copy)
ENTRY_PAIR(cuMemcpy3DPeerAsync, _ptsz, copy_later, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), copy,
	stream)

/* The question is about two different devices. */
CUDA_EXPORT CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
	const CUatomicOperation *operations, unsigned int count, CUdevice from, CUdevice to)
{
	CUresult r = process_enter_early();

	(void)from;
	(void)to;
	if (r != CUDA_SUCCESS)
		return r;
	return capabilities && operations && count ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
}

/* None: pinned host memory, and so managed memory, may lose updates where program and device change
 * a word at once. */
CUDA_EXPORT CUresult cuDeviceGetHostAtomicCapabilities(
	unsigned int *capabilities, const CUatomicOperation *operations, unsigned int count, CUdevice device)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!device_get(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!capabilities || !operations || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; ++i) {
		if ((int)operations[i] < 0 || operations[i] > CU_ATOMIC_OPERATION_FLOAT_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		capabilities[i] = 0;
	}
	return CUDA_SUCCESS;
}
