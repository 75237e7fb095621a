// The real driver, opened at run time: a struct with every entry point that the service uses.
// Nothing of frmps links against libcuda. Filled once by driver_open(), before the process has a
// second thread that uses the driver; read-only after.

#ifndef FRMPS_SERVER_BACKEND_CUDA_DRIVER_H
#define FRMPS_SERVER_BACKEND_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/* Oldest driver with all of driver.def that is not optional. */
#define DRIVER_MINIMUM 12040

struct driver {
#define FN(field, name, version, parameters)	     CUresult(*field) parameters;
#define FN_OR_NULL(field, name, version, parameters) CUresult(*field) parameters;
#include "server/backend/cuda/driver.def"
#undef FN_OR_NULL
#undef FN
	int version; /* cuDriverGetVersion; 0 = not open */
	char path[256];
};

extern struct driver driver;

/**
 * Finds and opens the driver library. Idempotent; the library stays open for the life of the
 * process. Makes no call that needs a device.
 * @text, @size: receives a sentence for the operator when the result is not CUDA_SUCCESS
 * Return: CUDA_SUCCESS; CUDA_ERROR_NO_DEVICE: no library; CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: too
 * old or incomplete
 */
CUresult driver_open(char *text, size_t size);

/**
 * Reserves exactly these addresses: to the driver an address is a hint.
 * Return: CUDA_SUCCESS; CUDA_ERROR_MAP_FAILED: the addresses are in use; as of
 * cuMemAddressReserve()
 */
CUresult driver_reserve(uint64_t address, uint64_t bytes);
/** Maps memory for a device to read and write, or not at all. The handle stays. Errors: as of
 * cuMemMap() and cuMemSetAccess(). */
CUresult driver_map_more(
	uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle, CUdevice device);
/** The same, and releases the handle in each case: the mapping is a reference to the memory. */
CUresult driver_map(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle, CUdevice device);

/** Opens another library of the driver's, from where the driver itself is looked for. Return: for
 * dlsym(); NULL: there is none */
void *driver_library(const char *name);

#endif
