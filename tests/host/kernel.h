// Interface of a module of the host backend: an ELF shared object that exports `frmps_host_kernels`
// and, if programs look globals up, `frmps_host_globals`. Variables with a state of kernels must be
// in `frmps_host_variables`, and the kernels be rows of HOST_KERNEL_KEEPS(): other state is lost
// with its executor, and no program gets an error. Building a module needs nothing but this header:
//
// 	struct scale { uint64_t data; uint32_t count; float factor; };   // laid out like the kernel's
// parameters 	static const struct host_param scale_params[] = {HOST_PARAM(struct scale, data), …};
//
// 	static void scale(const struct host_grid *grid, const struct host_block_index *block, void **params)
// 	{
// 		float *data = HOST_POINTER(float, params[0]);
// 		HOST_FOR_THREADS(grid, thread)
// 			…
// 	}
// 	HOST_KERNELS(HOST_KERNEL(scale, scale_params), …);
//
// A kernel is called once per block, block after block, in a thread of the executor; the threads of
// a block are a loop in the kernel. So a block may not wait for another block of its grid, and two
// such loops have an implicit barrier between them. Device addresses are addresses. params[i]
// points to the i-th parameter's bytes, as with cuLaunchKernel. A kernel that faults ends the
// process, just as on a device it ends the context.
//
// A module with HOST_WAITS is handled like a module that a driver loads: the executor lets the
// device run empty before each function's first lookup, and before the module is unloaded. Others
// are handled like those that the service loads itself.

#ifndef FRMPS_TESTS_HOST_KERNEL_H
#define FRMPS_TESTS_HOST_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOST_KERNEL_MAGIC UINT32_C(0x6b686d67)

struct host_dims {
	uint32_t x, y, z;
};

struct host_grid {
	struct host_dims grid;	/* blocks */
	struct host_dims block; /* threads of a block */
	uint32_t shared_bytes;	/* dynamic shared memory of a block */
	uint64_t sms;		/* bits of the multiprocessors for this kernel; without effect on its speed */
};

/* The target of a texture or surface object. Of a mipmapped array its first level. */
struct host_object {
	uint8_t *texels;	       /* NULL: there is no such object */
	uint64_t width, height, depth; /* in elements; none is 0 */
	uint64_t pitch, plane;	       /* bytes from row to row, from plane to plane */
	uint32_t element_bytes;
};

struct host_block_index {
	uint32_t x, y, z;
	void *shared; /* shared_bytes bytes, undefined at the start of a block; NULL if there are none */
	const struct host_object *objects; /* by handle */
	uint64_t object_count;
	const uint64_t *limits; /* of the context, by CUlimit: the kernel's limits */
};

typedef void host_kernel_fn(
	const struct host_grid *grid, const struct host_block_index *block, void **params);

struct host_param {
	uint32_t offset, size;
};

struct host_kernel {
	const char *name;
	host_kernel_fn *run;
	uint32_t param_count;
	const struct host_param *params; /* ascending, disjoint */
	bool keeps;			 /* writes the module's variables */
	uint32_t block[3];		 /* the only size of its blocks; 0: any */
	bool alone;			 /* the text says that a cluster is one block */
};

struct host_kernel_table {
	uint32_t magic; /* HOST_KERNEL_MAGIC */
	uint32_t count;
	const struct host_kernel *kernels;
};

struct host_global {
	const char *name;
	void *address;
	uint64_t bytes;
};

struct host_global_table {
	uint32_t magic; /* HOST_KERNEL_MAGIC */
	uint32_t count;
	const struct host_global *globals;
};

/* Variables that kernels reach through a pointer, which begins as the address of the first value: a
 * load may move them into the client's memory. */
struct host_moved {
	const char *name;
	void **pointer;
	uint64_t bytes;
};

struct host_moved_table {
	uint32_t magic; /* HOST_KERNEL_MAGIC */
	uint32_t count;
	const struct host_moved *variables;
};

/* Rows of frmps_host_constants are variables that kernels read in place and never write, like
 * __constant__ variables: a load may make a mirror of each in the client's memory. */

/* Rows. */
#define HOST_PARAM(layout, member)                                                                           \
	{                                                                                                    \
		(uint32_t) offsetof(layout, member), (uint32_t)sizeof(((layout *)0)->member)                 \
	}
#define HOST_KERNEL_ROW(function, list, count, keeps)                                                        \
	{                                                                                                    \
#function, function, (uint32_t)(count), list, keeps, {0, 0, 0 }, false                       \
	}
#define HOST_KERNEL(function, list) HOST_KERNEL_ROW(function, list, sizeof(list) / sizeof((list)[0]), false)
#define HOST_KERNEL_PLAIN(function) HOST_KERNEL_ROW(function, NULL, 0, false)
/* A kernel that writes the module's variables. */
#define HOST_KERNEL_KEEPS(function, list)                                                                    \
	HOST_KERNEL_ROW(function, list, sizeof(list) / sizeof((list)[0]), true)
/* A kernel whose blocks have one size. */
#define HOST_KERNEL_SHAPED(function, list, ...)                                                              \
	{                                                                                                    \
#function, function, sizeof(list) / sizeof((list)[0]), list, false, {__VA_ARGS__ }, false    \
	}
/* A kernel whose clusters have one block. */
#define HOST_KERNEL_ALONE(function, list)                                                                    \
	{                                                                                                    \
#function, function, sizeof(list) / sizeof((list)[0]), list, false, {0, 0, 0 }, true         \
	}
#define HOST_GLOBAL(variable)                                                                                \
	{                                                                                                    \
#variable, &(variable), sizeof(variable)                                                     \
	}

/* Tables, once per module. */
#define HOST_EXPORT __attribute__((visibility("default"))) const
#define HOST_KERNELS(...)                                                                                    \
	static const struct host_kernel frmps_host_kernel_rows[] = {__VA_ARGS__};                            \
	extern HOST_EXPORT struct host_kernel_table frmps_host_kernels;                                      \
	HOST_EXPORT struct host_kernel_table frmps_host_kernels = {HOST_KERNEL_MAGIC,                        \
		sizeof(frmps_host_kernel_rows) / sizeof(frmps_host_kernel_rows[0]), frmps_host_kernel_rows}
#define HOST_GLOBAL_TABLE(table, ...)                                                                        \
	static const struct host_global table##_rows[] = {__VA_ARGS__};                                      \
	extern HOST_EXPORT struct host_global_table table;                                                   \
	HOST_EXPORT struct host_global_table table = {                                                       \
		HOST_KERNEL_MAGIC, sizeof(table##_rows) / sizeof(table##_rows[0]), table##_rows}
/* Variables that programs look up. */
#define HOST_GLOBALS(...) HOST_GLOBAL_TABLE(frmps_host_globals, __VA_ARGS__)
/* Variables that kernels only read; programs may look them up and write them. */
#define HOST_CONSTANTS(...) HOST_GLOBAL_TABLE(frmps_host_constants, __VA_ARGS__)
/* Variables that kernels write; programs may look them up as well. */
#define HOST_VARIABLES(...) HOST_GLOBAL_TABLE(frmps_host_variables, __VA_ARGS__)

#define HOST_MOVED_ROW(variable)                                                                             \
	{                                                                                                    \
#variable, (void **)&(variable), sizeof(*(variable))                                         \
	}
#define HOST_MOVED(...)                                                                                      \
	static const struct host_moved frmps_host_moved_rows[] = {__VA_ARGS__};                              \
	extern HOST_EXPORT struct host_moved_table frmps_host_moved;                                         \
	HOST_EXPORT struct host_moved_table frmps_host_moved = {HOST_KERNEL_MAGIC,                           \
		sizeof(frmps_host_moved_rows) / sizeof(frmps_host_moved_rows[0]), frmps_host_moved_rows}

/* Its variables of HOST_MOVED are for managed memory. At most once per module. */
#define HOST_MANAGED                                                                                         \
	extern HOST_EXPORT bool frmps_host_managed;                                                          \
	HOST_EXPORT bool frmps_host_managed = true

/* See above. At most once per module. */
#define HOST_WAITS                                                                                           \
	extern HOST_EXPORT bool frmps_host_waits;                                                            \
	HOST_EXPORT bool frmps_host_waits = true

/* Reading parameters: a value, or a device address as a pointer. */
#define HOST_VALUE(type, param)	  (*(const type *)(param))
#define HOST_POINTER(type, param) ((type *)(uintptr_t)HOST_VALUE(uint64_t, param))

/* Runs the following statement for every thread of the block, `thread` counting from 0. */
#define HOST_FOR_THREADS(grid, thread)                                                                       \
	for (uint32_t thread = 0; thread < (grid)->block.x * (grid)->block.y * (grid)->block.z; thread++)

/* An element of a surface; NULL outside, and without such an object. */
static inline void *host_surface(
	const struct host_block_index *block, uint64_t handle, uint64_t x, uint64_t y, uint64_t z)
{
	const struct host_object *object = handle < block->object_count ? &block->objects[handle] : NULL;

	if (!object || !object->texels || x >= object->width || y >= object->height || z >= object->depth)
		return NULL;
	return object->texels + z * object->plane + y * object->pitch + x * object->element_bytes;
}

/* The nearest element of a texture; NULL where there is no such object. */
static inline const void *host_texture(
	const struct host_block_index *block, uint64_t handle, int64_t x, int64_t y, int64_t z)
{
	const struct host_object *object = handle < block->object_count ? &block->objects[handle] : NULL;
	const int64_t at[] = {x, y, z};
	uint64_t ends[3], near[3];

	if (!object || !object->texels)
		return NULL;
	ends[0] = object->width;
	ends[1] = object->height;
	ends[2] = object->depth;
	for (int i = 0; i < 3; i++) {
		near[i] = at[i] < 0 ? 0 : (uint64_t)at[i];
		near[i] = near[i] < ends[i] ? near[i] : ends[i] - 1;
	}
	return host_surface(block, handle, near[0], near[1], near[2]);
}

/* Number of a thread in a one-dimensional grid. */
static inline uint64_t host_global_thread(
	const struct host_grid *grid, const struct host_block_index *block, uint32_t thread)
{
	return (uint64_t)block->x * grid->block.x + thread;
}

#endif
