// Finds the real libcuda.so.1 and resolves driver.def. The search goes through fixed directories
// before the linker's own, so that a shim on the library path is not found first, and asks every
// candidate if it is our shim (protocol/shim_uuid.h) before anything else. FRMPS_DRIVER names a
// single file and ends the search.

#include "server/backend/cuda/driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/shim_uuid.h"
#include "server/backend/backend.h"

struct driver driver;

#if defined(__aarch64__)
#define TRIPLE "aarch64-linux-gnu"
#else
#define TRIPLE "x86_64-linux-gnu"
#endif

static const char *const candidates[] = {
	"/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/" TRIPLE "/libcuda.so.1",
	"/usr/lib/" TRIPLE "/nvidia/current/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib/libcuda.so.1",
	"/run/nvidia/driver/usr/lib/" TRIPLE "/libcuda.so.1", "/run/nvidia/driver/usr/lib64/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1",
	"libcuda.so.1", /* by the dynamic linker's search */
};

struct entry {
	const char *name;
	int version;
	size_t offset;
	bool is_optional;
};

static const struct entry entries[] = {
#define FN(field, name, version, parameters)	     {name, version, offsetof(struct driver, field), false},
#define FN_OR_NULL(field, name, version, parameters) {name, version, offsetof(struct driver, field), true},
#include "server/backend/cuda/driver.def"
#undef FN_OR_NULL
#undef FN
};

typedef CUresult get_version_fn(int *ret_version);
typedef CUresult get_table_fn(const void **ret_table, const CUuuid *id);
typedef CUresult get_address_fn(const char *name, void **ret_function, int version, uint64_t flags,
	CUdriverProcAddressQueryResult *ret_status);

static bool is_shim(void *library)
{
	static const CUuuid id = {FRMPS_SHIM_UUID_BYTES};
	get_table_fn *get_table = (get_table_fn *)dlsym(library, "cuGetExportTable");
	const void *table = NULL;

	return get_table && get_table(&table, &id) == CUDA_SUCCESS && table;
}

static CUresult resolve(void *library, struct driver *target, char *text, size_t size)
{
	get_address_fn *get_address = (get_address_fn *)dlsym(library, "cuGetProcAddress_v2");
	get_version_fn *get_version = (get_version_fn *)dlsym(library, "cuDriverGetVersion");
	int version = 0;

	if (get_version && get_version(&version) == CUDA_ERROR_STUB_LIBRARY) {
		snprintf(text, size, "%s is a stub for linking, not the NVIDIA driver.", target->path);
		return CUDA_ERROR_STUB_LIBRARY;
	}
	if (!get_address || version < DRIVER_MINIMUM) {
		snprintf(text, size, "The NVIDIA driver in %s is for CUDA %d.%d; %d.%d or newer is needed.",
			target->path, version / 1000, version % 1000 / 10, DRIVER_MINIMUM / 1000,
			DRIVER_MINIMUM % 1000 / 10);
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	}
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		void *function = NULL;
		CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;

		if (get_address(entries[i].name, &function, entries[i].version,
			    CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status))
			function = NULL;
		if (!function && !entries[i].is_optional) {
			snprintf(text, size, "The NVIDIA driver in %s has no %s.", target->path,
				entries[i].name);
			return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
		}
		memcpy((char *)target + entries[i].offset, &function, sizeof(function));
	}
	target->version = version;
	return CUDA_SUCCESS;
}

/* CUDA_ERROR_NO_DEVICE: nothing to be had there, go on searching. */
static CUresult try_library(const char *path, char *text, size_t size)
{
	struct driver found = {0};
	void *library;
	CUresult code;

	if (strchr(path, '/') && access(path, F_OK))
		return CUDA_ERROR_NO_DEVICE;
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *why = dlerror();

		if (strchr(path, '/'))
			snprintf(
				text, size, "The driver library cannot be opened: %.180s.", why ? why : path);
		return CUDA_ERROR_NO_DEVICE;
	}
	snprintf(found.path, sizeof(found.path), "%s", path);
	if (is_shim(library)) {
		snprintf(text, size, "%s is the frmps client library, not the NVIDIA driver.", path);
		dlclose(library);
		return CUDA_ERROR_NO_DEVICE;
	}
	code = resolve(library, &found, text, size);
	if (code == CUDA_SUCCESS)
		driver = found; /* the library stays open: its functions are used from now on */
	else
		dlclose(library);
	return code;
}

CUresult driver_open(char *text, size_t size)
{
	const char *chosen = getenv("FRMPS_DRIVER");
	CUresult code = CUDA_ERROR_NO_DEVICE;

	if (driver.version)
		return CUDA_SUCCESS;
	snprintf(text, size, "No NVIDIA driver library (libcuda.so.1) was found.");
	if (chosen && *chosen) {
		snprintf(text, size, "FRMPS_DRIVER names %.180s, which does not exist.", chosen);
		return try_library(chosen, text, size);
	}
	for (size_t i = 0; code == CUDA_ERROR_NO_DEVICE && i < sizeof(candidates) / sizeof(candidates[0]);
		i++)
		code = try_library(candidates[i], text, size);
	return code;
}

/* @file: the driver's own file; without a folder the dynamic linker searches */
static void *open_beside(const char *file, const char *name)
{
	const char *slash = strrchr(file, '/');
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash + 1 - file) : 0, file, name);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *driver_library(const char *name)
{
	const char *chosen = getenv("FRMPS_DRIVER");
	void *library = NULL;

	if (driver.version)
		return open_beside(driver.path, name);
	if (chosen && *chosen)
		return open_beside(chosen, name);
	for (size_t i = 0; !library && i < sizeof(candidates) / sizeof(candidates[0]); i++)
		library = open_beside(candidates[i], name);
	return library;
}

CUresult driver_reserve(uint64_t address, uint64_t bytes)
{
	CUdeviceptr got = 0;
	CUresult code = driver.address_reserve(&got, bytes, BACKEND_CHUNK_GRANULE, address, 0);

	if (code || got == address)
		return code;
	driver.address_free(got, bytes);
	return CUDA_ERROR_MAP_FAILED;
}

CUresult driver_map_more(
	uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle, CUdevice device)
{
	const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUresult code = driver.memory_map(address, bytes, 0, handle, 0);

	if (!code) {
		code = driver.memory_access(address, bytes, &access, 1);
		if (code)
			driver.memory_unmap(address, bytes);
	}
	return code;
}

CUresult driver_map(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle, CUdevice device)
{
	CUresult code = driver_map_more(address, bytes, handle, device);

	driver.memory_release(handle);
	return code;
}
