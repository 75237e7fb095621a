// Modules and libraries. CUmodule and CUlibrary are addresses of struct client_module; a library
// belongs to no context, and its module (cuLibraryGetModule) is the library itself under the other
// name. The service loads an image at the call, so that a bad image is reported at once, and
// answers every name once: struct client_module caches kernels and globals.
//
// The handle of an unloaded module is refused. Unloading waits for the work that the program has
// submitted so far, as the driver's does: a kernel of the module may be in that work.
//
// A library outlives its contexts. When its home context (instance.h) or the last live context
// ends, the service unloads a library that was used. Its handle and the handles of its kernels stay
// valid; the next use of any of these loads the image again, with its globals as at the start.
//
// What is asked about a module is asked in its session. Any thread. Except while a library is
// woken, no thread asks the service under a lock. Two threads that look up the same name at the
// same time may both ask; both get the same object.

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
struct session;
struct renewal;

#define MODULE_MAGIC UINT32_C(0x4d4f444c)
#define MODULE_SHIFT 8
/* Ids at the service are 1 … MODULE_IDS: the most modules that can be loaded at a time. */
#define MODULE_IDS 4095u

/* Of a session; guarded by the registry's lock. */
struct module_ids {
	uint64_t words[(MODULE_IDS + 64) / 64]; /* bit per id in use */
};

/* State of a library between two contexts. */
enum module_sleep {
	MODULE_AWAKE,
	MODULE_ASLEEP, /* the service has unloaded the library */
	MODULE_LOST,   /* the unload failed, so the service may still have the library: never used again */
};

struct client_module {
	struct slab_object object;
	uint32_t id;
	bool library;
	CUcontext context;	    /* NULL for libraries */
	struct session *session;    /* that has it; a library is in the one in which it was loaded */
	word32 sleep;		    /* enum module_sleep; written under the waking lock */
	struct renewal *renewal;    /* of a library */
	word64 home;		    /* of a library: id of the context of its globals, 0: none yet */
	struct client_module *base; /* the library of this instance; NULL: no instance */
	struct client_module *instances, *next_instance; /* of a library; guarded by instance.c */
	pthread_mutex_t lock;
	struct client_function *functions; /* guarded by lock, as are the globals */
	struct client_global *globals;
	void *variables;     /* device memory of its variables and of mirrors of its constants; or NULL */
	CUdeviceptr managed; /* managed memory of its managed variables (managed.h); or 0 */
	struct client_module *next; /* guarded by the registry's lock */
};

/** The module of a handle, libraries included; NULL for an invalid handle or an unloaded module. */
struct client_module *module_find(CUmodule handle);
/** The library of a handle; NULL for an invalid handle or an unloaded library. */
struct client_module *library_find(CUlibrary handle);

/**
 * Loads an image in the calling thread's session.
 * @image: the caller keeps it
 * @context: owner, NULL for a library
 * @jit: options; the call fills the log buffers
 */
CUresult module_load(
	struct image *image, CUcontext context, struct jit *jit, struct client_module **ret_module);

/** Unloads; CUDA_ERROR_INVALID_HANDLE if another thread does so already. */
CUresult module_unload(struct client_module *module);

/** Unloads all modules of a context; libraries stay. Errors are not reported. */
void module_release_context(CUcontext context);

/**
 * A context ends, and all work is done: the service unloads the libraries with this home, or with
 * home 0 all that were used. Return: CUDA_SUCCESS, or the error of a failed unload; that library
 * cannot be used any more.
 */
CUresult module_sleep_libraries(uint64_t home);

/** Sets the home of a session's used libraries without a home. */
void module_settle_libraries(const struct session *session, uint64_t home);

/** Loads a library's image as a module of a context, which may be of another session. */
CUresult module_load_instance(
	struct client_module *library, CUcontext context, struct client_module **ret_instance);

/** A kernel by name. @name, @ret_function: the program's, NULL is CUDA_ERROR_INVALID_VALUE. Also
 * CUDA_ERROR_NOT_FOUND. */
CUresult module_function(
	struct client_module *module, const char *name, struct client_function **ret_function);

/** A global by name; each output may be NULL, but not both, nor the name. CUDA_ERROR_NOT_FOUND. */
CUresult module_global(
	struct client_module *module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes);

/** A managed variable by name; each output may be NULL. CUDA_ERROR_NOT_FOUND, also for others. */
CUresult module_managed(
	struct client_module *module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes);

/* The driver lists the kernels of a library in the order of its code, and those of a module the
 * other way around. */
enum module_order { MODULE_ORDER_LIBRARY, MODULE_ORDER_MODULE };

/**
 * Looks up the first kernels of a module, in an order.
 * @ret_functions: room for `room` kernels; NULL asks for the number alone
 * @ret_count: number of the module's kernels
 */
CUresult module_functions(struct client_module *module, enum module_order order,
	struct client_function **ret_functions, unsigned int room, unsigned int *ret_count);

/** Number of modules unloaded so far: after an increase, records may name unloaded kernels. */
uint64_t module_unloads(void);

#endif
