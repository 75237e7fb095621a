// Calls of a driver that tests of the CUDA backend play, and that do nothing in any of them.

#ifndef FRMPS_TESTS_UNIT_SERVER_BACKEND_FAKE_CALLS_H
#define FRMPS_TESTS_UNIT_SERVER_BACKEND_FAKE_CALLS_H

#include "server/backend/cuda/driver.h"

/** driver.memory_access: whatever is mapped can be reached. */
static inline CUresult fake_memory_access(
	CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	(void)address;
	(void)bytes;
	(void)access;
	(void)count;
	return CUDA_SUCCESS;
}

/** driver.context_priorities */
static inline CUresult fake_priorities(int *ret_least, int *ret_greatest)
{
	*ret_least = *ret_greatest = 0;
	return CUDA_SUCCESS;
}

/** driver.stream_create */
static inline CUresult fake_stream_create(CUstream *ret_stream, unsigned flags, int priority)
{
	(void)flags;
	(void)priority;
	*ret_stream = NULL;
	return CUDA_SUCCESS;
}

#endif
