// Entry points: profiler control. There is no profiler, so the calls do nothing.

#include "client/entry/entry.h"

CUDA_EXPORT CUresult cuProfilerInitialize(const char *config, const char *output, CUoutput_mode mode)
{
	(void)config;
	(void)output;
	(void)mode;
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUDA_EXPORT CUresult cuProfilerStart(void)
{
	return process_enter_context();
}

CUDA_EXPORT CUresult cuProfilerStop(void)
{
	return process_enter_context();
}
