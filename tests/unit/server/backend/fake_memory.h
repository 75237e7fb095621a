// Device memory of a driver that tests play: addresses are as wished, and nothing is counted.

#ifndef FRMPS_TESTS_UNIT_SERVER_BACKEND_FAKE_MEMORY_H
#define FRMPS_TESTS_UNIT_SERVER_BACKEND_FAKE_MEMORY_H

#include "server/backend/cuda/driver.h"
#include "tests/unit/server/backend/fake_calls.h"

static inline CUresult fake_address_reserve(CUdeviceptr *ret_address, size_t bytes, size_t alignment,
	CUdeviceptr address, unsigned long long flags)
{
	(void)bytes;
	(void)alignment;
	(void)flags;
	*ret_address = address;
	return CUDA_SUCCESS;
}

static inline CUresult fake_memory_create(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
	const CUmemAllocationProp *properties, unsigned long long flags)
{
	(void)bytes;
	(void)properties;
	(void)flags;
	*ret_handle = 1;
	return CUDA_SUCCESS;
}

static inline CUresult fake_memory_release(CUmemGenericAllocationHandle handle)
{
	(void)handle;
	return CUDA_SUCCESS;
}

static inline CUresult fake_memory_map(CUdeviceptr address, size_t bytes, size_t offset,
	CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	(void)address;
	(void)bytes;
	(void)offset;
	(void)handle;
	(void)flags;
	return CUDA_SUCCESS;
}

static inline CUresult fake_memory_unmap(CUdeviceptr address, size_t bytes)
{
	(void)address;
	(void)bytes;
	return CUDA_SUCCESS;
}

static inline CUresult fake_stream_synchronize(CUstream stream)
{
	(void)stream;
	return CUDA_SUCCESS;
}

/** Sets driver's fields for memory and for streams that are always empty. */
static inline void fake_memory_open(void)
{
	driver.address_reserve = fake_address_reserve;
	driver.memory_create = fake_memory_create;
	driver.memory_release = fake_memory_release;
	driver.memory_map = fake_memory_map;
	driver.memory_access = fake_memory_access;
	driver.memory_unmap = fake_memory_unmap;
	driver.context_priorities = fake_priorities;
	driver.stream_create = fake_stream_create;
	driver.stream_synchronize = fake_stream_synchronize;
}

#endif
