// Kernels of the program. CUfunction and CUkernel are two names for the address of the same struct
// client_function, and every call takes either. (In each further context a library's kernel has a
// separate object: instance.h.) The object has everything that a launch needs: parameter layout,
// limits, attributes; the lookup of the kernel has asked the service once.
//
// Attributes that the program sets: permissions (the size of dynamic shared memory, cluster sizes
// that are not portable) are only ever raised at the service, so that a queued launch is never
// checked against a later, lower value; this library enforces the lower value. All other attributes
// are sent when set; a value that is already set is not sent. A request does not go through the
// ring, so a change first waits for earlier launches of the kernel: for a hint until the launches
// are with the driver; for cluster sizes, which the kernel sees, until the launches are done. A
// launch that is replayed after another program's fault must find the values of the first time.
//
// function_find() and the launch path read without a lock. Two threads that set an attribute of the
// same kernel at once leave either value, as with the driver.

#ifndef FRMPS_CLIENT_STATE_FUNCTION_H
#define FRMPS_CLIENT_STATE_FUNCTION_H

#include <stdbool.h>
#include <stdint.h>

#include "client/state/slab.h"
#include "protocol/cuda_abi.h"
#include "protocol/wire.h"
#include "shm/order.h"

struct client_module;
struct session;

#define FUNCTION_MAGIC UINT32_C(0x4b524e4c)
/* A kernel of a library whose context ended: the service does not have the kernel until its next
 * use. */
#define FUNCTION_ASLEEP UINT32_C(0x4b524e5a)
#define FUNCTION_SHIFT	8
/* Ids are 1 … FUNCTION_IDS. */
#define FUNCTION_IDS 65535u
/* Attribute number of the cache configuration in SetFunction. */
#define FUNCTION_ATTRIBUTE_CACHE 1000u

struct function_param {
	uint32_t offset, size;
};

/* A launch reads the first cache lines. Everything up to `attributes` is constant while the object
 * lives. */
struct client_function {
	struct slab_object object;
	uint32_t id;
	uint32_t param_count;
	const struct function_param *params; /* in order of their offsets, without overlap */
	uint32_t argument_bytes;	     /* end of the last parameter */
	uint32_t max_threads;		     /* per block, of the kernel and the device */
	struct session *session;
	uint32_t max_grid[3], max_block[3];
	uint32_t only_block[3];			   /* the only size of a block; 0: any */
	uint32_t max_cluster;			   /* blocks; 0: the device's */
	bool has_cluster;			   /* was compiled for clusters of one size */
	bool counts_clusters;			   /* the size of a grid is that in clusters */
	int32_t attributes[CU_FUNC_ATTRIBUTE_MAX]; /* the program's values */
	int32_t granted_shared,
		granted_clusters; /* permissions at the service, never below the program's values */
	int32_t cache_config;
	uint32_t revision; /* counts changes of attributes */
	uint32_t followed; /* of an instance's kernel: the library kernel's revision that was copied last */
	word32 launched;   /* was launched at least once */
	uint64_t serial;   /* unique in the life of the process */
	struct client_module *module;
	const char *name;
	uint32_t name_hash;
	struct client_function *next; /* in the module's list, guarded by the module */
};

extern struct slab function_slab;

/**
 * The kernel of a handle of either kind (pass it as a plain pointer), NULL for an invalid handle or
 * an unloaded module.
 */
static inline struct client_function *function_find(const void *handle)
{
	return slab_find(&function_slab, handle, FUNCTION_MAGIC);
}

/**
 * Loads the library of an asleep kernel again (module.c). CUDA_ERROR_INVALID_HANDLE for any other
 * handle.
 */
CUresult function_wake(const void *handle, struct client_function **ret_function);

/**
 * The kernel of a handle, awake. CUDA_ERROR_INVALID_HANDLE, or the error of loading its library
 * again.
 */
static inline CUresult function_use(const void *handle, struct client_function **ret_function)
{
	*ret_function = function_find(handle);
	return __builtin_expect(*ret_function != NULL, 1) ? CUDA_SUCCESS
							  : function_wake(handle, ret_function);
}

/**
 * Looks a kernel up at the service of the calling thread's session.
 * @module, @module_id: its module; the object keeps the pointer
 * Return: CUDA_ERROR_NOT_FOUND for an unknown name; CUDA_ERROR_OUT_OF_MEMORY, also when all ids are
 * in use.
 */
CUresult function_new(struct client_module *module, uint32_t module_id, const char *name,
	struct client_function **ret_function);

/**
 * Frees a kernel. @reusable: the service has unloaded its module; else the service may still have
 * the kernel, and the id is never reused.
 */
void function_free(struct client_function *function, bool reusable);

/** The service has unloaded the kernel's library. */
void function_sleep(struct client_function *function);

/**
 * Looks the kernel up again in its reloaded library, and sends the attributes that the program had
 * set.
 */
CUresult function_renew(struct client_function *function, uint32_t module_id);

/** Value of an attribute; CUDA_ERROR_INVALID_VALUE for an unknown attribute. */
CUresult function_attribute(const struct client_function *function, int attribute, int *ret_value);

/** A launch of the kernel is about to be written. Only the first launch writes the word. */
static inline void function_launched(const struct client_function *function)
{
	word32 *launched = &((struct client_function *)function)->launched;

	if (!word_relaxed(launched))
		word_set(launched, 1);
}

/**
 * Sets an attribute. CUDA_ERROR_INVALID_VALUE for unknown and read-only attributes and invalid
 * values.
 */
CUresult function_set_attribute(struct client_function *function, int attribute, int value);

/** CUDA_ERROR_INVALID_VALUE for an unknown configuration. */
CUresult function_set_cache_config(struct client_function *function, int config);

/**
 * Copies the program's attributes from a library's kernel to the same kernel in another instance.
 */
CUresult function_follow(struct client_function *function, const struct client_function *kernel);

/**
 * Place of a parameter; ret_size may be NULL. CUDA_ERROR_INVALID_VALUE after the last parameter and
 * for a NULL ret_offset.
 */
CUresult function_param_info(
	const struct client_function *function, size_t index, size_t *ret_offset, size_t *ret_size);

/**
 * Reads the answer to FindFunction into an object. CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN for
 * an invalid answer. For function_new() and its tests.
 */
CUresult function_decode(struct client_function *function, const struct wire_u64s *values);

#endif
