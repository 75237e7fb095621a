// Entry points: start and version. cuDriverGetVersion works before cuInit.

#include "client/entry/entry.h"
#include "client/state/injection.h"
#include "client/state/start.h"

CUDA_EXPORT CUresult cuInit(unsigned int flags)
{
	CUresult r;

	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = start_driver();
	if (r == CUDA_SUCCESS)
		injection_start();
	return r;
}

CUDA_EXPORT CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	/* The version of this library's interface, whatever version the service's driver has. */
	*version = CUDA_ABI_VERSION;
	return CUDA_SUCCESS;
}
