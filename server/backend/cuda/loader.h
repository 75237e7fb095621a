// The service's own loader: modules with code, tables and variables in ordinary device memory, and
// with kernels that are entered through trampolines (trampoline.h). A load is a copy, which waits
// for nothing that runs; a driver's load waits for everything (module.c).
//
// kernels_open() (kernels.h), or functions below, name the modules that the loader refuses, and the
// driver loads those.
//
// The module thread; launches on any thread.

#ifndef FRMPS_SERVER_BACKEND_CUDA_LOADER_H
#define FRMPS_SERVER_BACKEND_CUDA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/backend/backend.h"
#include "server/backend/cuda/cuda.h"
#include "server/backend/fatbin.h"

struct loader_module;

/* A kernel on the device. The module thread changes its attributes while others launch the kernel:
 * a launch may see some of the old attributes. */
struct loader_kernel {
	struct cuda_kernel kernel; /* its trampoline; names this struct */
	uint64_t code;
	uint32_t carried;	   /* bytes of the trampoline's parameters */
	uint32_t tail, tail_bytes; /* data behind its parameters, and its place */
	uint8_t *tail_data;
	uint32_t shared; /* static */
	uint32_t local;	 /* bytes of local memory; 0: what the context has at first */
	bool is_plain;	 /* a launch needs no attributes of its own */
	int32_t attributes[BACKEND_FUNC_ATTRS];
	struct backend_shape shape;
};

/** When the context is made. Return: true if the loader works; if not, the driver loads all
 * modules, and the log has the reason. */
bool loader_open(CUdevice device);
/** The loader has failed its trial (loader_trial.h). */
void loader_disable(void);
/** The loader has passed: addresses of code can be given again (code_caches.h). */
void loader_open_caches(CUdevice device);
void loader_close(void);

/**
 * Loads a cubin.
 * @cubin: on the heap; becomes the module's, unless this fails
 * @owner: for a fault in the code (code.h)
 * @load: window and code
 * @ret_why: where CUDA_ERROR_NOT_SUPPORTED
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED: for the driver to load; CUDA_ERROR_OUT_OF_MEMORY;
 * as of cuMemAlloc() and cuMemcpyHtoDAsync()
 */
CUresult loader_load(const struct fatbin_bytes *cubin, struct backend_module *owner,
	struct backend_load *load, struct loader_module **ret_module, enum load_reason *ret_why);
/** While no kernel of the module is on the device or waits for the device. NULL is fine. */
void loader_unload(struct loader_module *module);

/** Puts a kernel on the device, unless present. Errors: CUDA_ERROR_NOT_FOUND, and as above. */
CUresult loader_find(struct loader_module *module, const char *name, struct backend_function **ret_function,
	struct backend_function_info *ret_info);
/** CUDA_ERROR_NOT_FOUND: there is none of that name. */
CUresult loader_global(struct loader_module *module, const char *name, struct backend_global *ret_global);
uint32_t loader_count(const struct loader_module *module);
/** In the order of names. @index: below loader_count() */
const char *loader_name(const struct loader_module *module, uint32_t index);

/** As cuFuncSetAttribute(); attribute 1000: as cuFuncSetCacheConfig(). */
CUresult loader_set(struct loader_kernel *kernel, uint32_t attribute, int64_t value);

/** Return: CUDA_SUCCESS if a launch can have these clusters. @cluster: NULL: it says nothing. Any
 * thread. */
CUresult loader_check_cluster(const struct loader_kernel *kernel, const CUlaunchAttributeValue *cluster);
/** Return: CUDA_SUCCESS for a launch that the driver would accept. Any thread. */
CUresult loader_check(const struct loader_kernel *kernel, const struct backend_launch *launch);
/** The data that a launch carries. @ret: kernel->carried bytes. Any thread. */
void loader_carry(const struct loader_kernel *kernel, const struct backend_launch *launch, uint8_t *ret);
/**
 * Adds the attributes that a launch of the kernel needs and does not set itself.
 * @io_count: their number; at most LOADER_ATTRIBUTES more
 */
#define LOADER_ATTRIBUTES 3u
void loader_attributes(
	const struct loader_kernel *kernel, CUlaunchAttribute *io_attributes, unsigned *io_count);

#endif
