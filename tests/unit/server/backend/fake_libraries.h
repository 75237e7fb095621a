// Libraries of a driver that tests play: they have every kernel that anybody asks for, and banks of
// constants that lie one behind the other.

#ifndef FRMPS_TESTS_UNIT_SERVER_BACKEND_FAKE_LIBRARIES_H
#define FRMPS_TESTS_UNIT_SERVER_BACKEND_FAKE_LIBRARIES_H

#include <stdint.h>

#include "server/backend/cuda/driver.h"
#include "server/backend/trampoline_image.h"

#define FAKE_BANKS_AT UINT64_C(0x7f0000000000)

static uint64_t fake_libraries;

static inline CUresult fake_library_load(CUlibrary *ret_library, const void *image, CUjit_option *jit_options,
	void **jit_values, unsigned jit_count, CUlibraryOption *options, void **values, unsigned count)
{
	(void)image;
	(void)jit_options;
	(void)jit_values;
	(void)jit_count;
	(void)options;
	(void)values;
	(void)count;
	*ret_library = (CUlibrary)(uintptr_t)++fake_libraries;
	return CUDA_SUCCESS;
}

static inline CUresult fake_library_kernel(CUkernel *ret_kernel, CUlibrary library, const char *name)
{
	(void)library;
	(void)name;
	*ret_kernel = NULL;
	return CUDA_SUCCESS;
}

static inline CUresult fake_kernel_function(CUfunction *ret_function, CUkernel kernel)
{
	static uint8_t function[256];

	(void)kernel;
	*ret_function = (CUfunction)(void *)function;
	return CUDA_SUCCESS;
}

static inline CUresult fake_function_load(CUfunction function)
{
	(void)function;
	return CUDA_SUCCESS;
}

static inline CUresult fake_function_set_attribute(
	CUfunction function, CUfunction_attribute attribute, int value)
{
	(void)function;
	(void)attribute;
	(void)value;
	return CUDA_SUCCESS;
}

static inline CUresult fake_library_global(
	CUdeviceptr *ret_address, size_t *ret_bytes, CUlibrary library, const char *name)
{
	(void)name;
	*ret_address = FAKE_BANKS_AT + (uint64_t)(uintptr_t)library * TRAMPOLINE_BANK_BYTES;
	*ret_bytes = TRAMPOLINE_BANK_BYTES;
	return CUDA_SUCCESS;
}

/** Sets driver's fields for libraries and kernels. */
static inline void fake_libraries_open(void)
{
	fake_libraries = 0;
	driver.library_load = fake_library_load;
	driver.library_kernel = fake_library_kernel;
	driver.kernel_function = fake_kernel_function;
	driver.function_load = fake_function_load;
	driver.function_set_attribute = fake_function_set_attribute;
	driver.library_global = fake_library_global;
}

#endif
