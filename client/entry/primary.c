// Entry points: primary contexts.

#include "client/entry/entry.h"

#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/start.h"

static CUresult enter(CUdevice device)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	return device_get(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUDA_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	TRACE_CALL();
	CUresult r = enter(device);

	if (r != CUDA_SUCCESS)
		return r;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	r = start_session(device);
	return r == CUDA_SUCCESS ? context_primary_retain(device, context) : r;
}

CUDA_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	TRACE_CALL();
	CUresult r = enter(device);

	return r == CUDA_SUCCESS ? context_primary_release(device) : r;
}

CUDA_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	return cuDevicePrimaryCtxRelease_v2(device);
}

CUDA_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	TRACE_CALL();
	CUresult r = enter(device);

	return r == CUDA_SUCCESS ? context_primary_reset(device) : r;
}

CUDA_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	return cuDevicePrimaryCtxReset_v2(device);
}

CUDA_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	CUresult r = enter(device);

	if (r != CUDA_SUCCESS)
		return r;
	if (!context_flags_valid(flags))
		return CUDA_ERROR_INVALID_VALUE;
	context_set_flags(context_primary(device), flags);
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUDA_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	CUresult r = enter(device);
	unsigned int f;
	int a;

	if (r != CUDA_SUCCESS)
		return r;
	context_primary_state(device, &f, &a);
	if (flags)
		*flags = f;
	if (active)
		*active = a;
	return CUDA_SUCCESS;
}
