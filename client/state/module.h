// Modules and libraries. CUmodule and CUlibrary are addresses of struct client_module; a library is
// one that belongs to no context, and its module (cuLibraryGetModule) is the library itself under
// the other name. The service loads an image at the call, so that a bad image is reported at once,
// and answers every name once: kernels and globals are kept here.
//
// A handle of an unloaded module is refused. Unloading waits for the work that the program has
// given so far, as the driver's does: a kernel of the module may be in it.
//
// A library outlives the contexts it is used in. When the one ends that it is at home in
// (instance.h), or the last live one, the service unloads it if it was used; its handle and those
// of its kernels stay valid, and with the next use of any of them the image is loaded again, with
// its globals as at the start.
//
// Any thread. But for the waking of libraries no lock is held while the service is asked. Two
// threads that look up the same name at the same time may both ask; both get the same object.

#ifndef FRMPS_CLIENT_STATE_MODULE_H
#define FRMPS_CLIENT_STATE_MODULE_H

#include <stdbool.h>
#include <stddef.h>

#include "client/state/image.h"
#include "client/state/jit.h"
#include "client/state/slab.h"
#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct client_function;
struct client_global;
struct renewal;

#define MODULE_MAGIC UINT32_C(0x4d4f444c)
#define MODULE_SHIFT 8
/* Ids at the service are 1 … this: so many modules can be loaded at a time. */
#define MODULE_IDS 4095u

/* Where a library stands between two contexts. */
enum module_sleep {
	MODULE_AWAKE,
	MODULE_ASLEEP, /* the service has unloaded it */
	MODULE_LOST,   /* the service may still hold it as it was: it is not used any more */
};

struct client_module {
	struct slab_object object;
	uint32_t id;
	bool library;
	CUcontext context;	    /* NULL for libraries */
	int device;		    /* ordinal */
	word32 sleep;		    /* enum module_sleep; written under the waking lock */
	struct renewal *renewal;    /* of a library */
	word64 home;		    /* of a library: id of the context whose globals it has, 0: of none yet */
	struct client_module *base; /* the library of which this is an instance; NULL: it is none */
	struct client_module *instances, *next_instance; /* of a library; guarded by instance.c */
	pthread_mutex_t lock;
	struct client_function *functions; /* guarded by lock, as are the globals */
	struct client_global *globals;
	void *variables;     /* its block of device memory (memory.h), also for mirrors of its constants;
			  * NULL: there is none */
	CUdeviceptr managed; /* the same in managed memory (managed.h), where some of them are; else 0 */
	struct client_module *next; /* guarded by the registry's lock */
};

/** The module behind a handle, libraries included; NULL if it is none or was unloaded. */
struct client_module *module_find(CUmodule handle);
/** The library behind a handle; NULL if it is none or was unloaded. */
struct client_module *library_find(CUlibrary handle);

/**
 * Loads an image.
 * @image: stays the caller's
 * @context: owner, NULL for a library
 * @jit: options; its log buffers are filled in
 */
CUresult module_load(
	struct image *image, CUcontext context, struct jit *jit, struct client_module **ret_module);

/** Unloads; CUDA_ERROR_INVALID_HANDLE if somebody else does so already. */
CUresult module_unload(struct client_module *module);

/** Unloads everything that belongs to a context; libraries stay. Errors are not reported. */
void module_release_context(CUcontext context);

/** A context ends, and everything is done: the service unloads the libraries that are at home
 * there, or with home 0 all that were used. Return: CUDA_SUCCESS, or why one could not be
 * unloaded; it cannot be used any more. */
CUresult module_sleep_libraries(uint64_t home);

/** Libraries that were used are at home in a context from now on, unless they have a home. */
void module_settle_libraries(uint64_t home);

/** Loads a library's image as a module of a context. */
CUresult module_load_instance(
	struct client_module *library, CUcontext context, struct client_module **ret_instance);

/** A kernel by name; CUDA_ERROR_NOT_FOUND. */
CUresult module_function(
	struct client_module *module, const char *name, struct client_function **ret_function);

/** A global by name; each output may be NULL. CUDA_ERROR_NOT_FOUND. */
CUresult module_global(
	struct client_module *module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes);

/** A managed variable by name; each output may be NULL. CUDA_ERROR_NOT_FOUND, also for others. */
CUresult module_managed(
	struct client_module *module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes);

/**
 * Looks up the first kernels of a module, in the service's order.
 * @ret_functions: room for `room` of them; NULL asks for the count alone
 * @ret_count: how many kernels the module has
 */
CUresult module_functions(struct client_module *module, struct client_function **ret_functions,
	unsigned int room, unsigned int *ret_count);

/** How many modules were unloaded so far: what grows with it may name kernels that are gone. */
uint64_t module_unloads(void);

#endif
