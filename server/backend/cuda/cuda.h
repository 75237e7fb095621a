// Common parts of the cuda backend: the context of this process and the operations behind
// backend_cuda. Streams and events of backend.h are the driver's own handles, cast: the driver
// already has all their state, and a launch needs no lookup and no allocation.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CUDA_H
#define FRMPS_SERVER_BACKEND_CUDA_CUDA_H

#include <stdbool.h>
#include <string.h>

#include "server/backend/backend.h"
#include "server/backend/cuda/driver.h"

struct cuda {
	CUdevice device;
	CUcontext context; /* executors; NULL in the keeper */
};

/* Set by open_*, constant until close. */
extern struct cuda cuda;

/* A backend handle is a driver handle. */
static inline CUstream cuda_stream(struct backend_stream *stream)
{
	return (CUstream)(void *)stream;
}

static inline CUevent cuda_event(struct backend_event *event)
{
	return (CUevent)(void *)event;
}

struct loader_kernel;

/* A kernel of a client's module: to launch, and for graphs, which choose the context of the
 * kernel. */
struct cuda_kernel {
	CUkernel kernel;
	CUfunction function;	   /* NULL: not on the device yet */
	struct loader_kernel *own; /* the two are a trampoline's (loader.h); NULL: the driver's */
};

static inline struct cuda_kernel *cuda_kernel(struct backend_function *function)
{
	return (struct cuda_kernel *)(void *)function;
}

static inline CUfunction cuda_function(struct backend_function *function)
{
	return cuda_kernel(function)->function;
}

/**
 * The start of a function's code on the device, from the driver's object. Measured (driver 580);
 * nothing documents this. A wrong entry would make a fault of the kernel nobody's: the grid's
 * descriptor has the true entry.
 */
static inline uint64_t cuda_function_entry(CUfunction function)
{
	uint64_t entry;

	memcpy(&entry, (const uint8_t *)(const void *)function + 0x68, sizeof(entry));
	return entry;
}

/* probe.c */
CUresult cuda_probe(struct backend_probe *ret_probe);

/* device.c */
/** Why the device cannot be served; UNFIT_NOT: it can. Needs cuInit only. */
enum unfit cuda_device_unfit(CUdevice device);
/** True if the device's compute mode allows a context to one process alone. Needs cuInit only. */
bool cuda_device_is_exclusive(CUdevice device);
/** Reads the properties of the device for programs; the context is current. */
CUresult cuda_device_read(CUdevice device, struct backend_device *ret_device);
CUresult cuda_limit_set(CUlimit limit, uint64_t value, uint64_t *ret_value);

/* memory.c */
CUresult cuda_chunk_create(uint64_t bytes, uint64_t *ret_handle, int *ret_fd);
CUresult cuda_chunk_release(uint64_t handle);
CUresult cuda_window_reserve(uint64_t address, uint64_t bytes);
CUresult cuda_window_release(uint64_t address, uint64_t bytes);
CUresult cuda_chunk_map(uint64_t address, uint64_t bytes, int fd);
CUresult cuda_chunk_unmap(uint64_t address, uint64_t bytes);
CUresult cuda_sink_open(int fd, uint64_t bytes, struct backend_sink **ret_sink);
CUresult cuda_sink_close(struct backend_sink *sink);
CUresult cuda_sink_map(struct backend_sink *sink, uint64_t address);
CUresult cuda_sink_unmap(struct backend_sink *sink, uint64_t address);
CUresult cuda_host_register(void *address, uint64_t bytes);
CUresult cuda_host_unregister(void *address);
CUresult cuda_memory_info(uint64_t *ret_free, uint64_t *ret_total);
/** Sets device memory aside for the driver's tables of pages, where there is some, and none is. */
void cuda_spare_keep(void);
/** Gives it back. Return: true if there was some */
bool cuda_spare_give(void);
CUresult cuda_tensor_map(const struct wire_tensor_map *map, uint64_t ret_words[WIRE_TENSOR_MAP_WORDS]);

/* compile.c */
CUresult cuda_module_compile(const void *image, size_t bytes, uint64_t room,
	const struct wire_options *options, char *log, size_t log_bytes, void **ret_code, size_t *ret_bytes);

/* link.c */
CUresult cuda_link_create(const struct wire_options *options, struct backend_link **ret_link);
CUresult cuda_link_add(struct backend_link *link, const struct backend_link_input *input);
CUresult cuda_link_complete(struct backend_link *link, const void **ret_image, size_t *ret_bytes);
void cuda_link_logs(const struct backend_link *link, const char **ret_errors, const char **ret_remarks);
CUresult cuda_link_destroy(struct backend_link *link);

/* array.c */
CUresult cuda_array_make(const struct wire_array *form, struct backend_array **ret_array, uint64_t *ret_bytes,
	uint64_t *ret_alignment);
CUresult cuda_array_back(struct backend_array *array, const struct wire_back_array *memory, int fd);
CUresult cuda_array_free(struct backend_array *array);
CUresult cuda_object_make(const struct wire_object *form, struct backend_array *array, uint64_t *ret_value);
CUresult cuda_object_free(uint32_t kind, uint64_t value);
CUresult cuda_object_settle(void);
/** A level of an array that has memory; NULL if there is none. */
CUarray cuda_array_level(const struct backend_array *array, uint32_t level);

/* module.c */
/** Of the device: 10 * major + minor. */
unsigned cuda_arch(void);
CUresult cuda_module_load(struct backend_load *load, struct backend_module **ret_module);
CUresult cuda_module_unload(struct backend_module *module);
bool cuda_module_waits(const struct backend_module *module);
const struct statics *cuda_module_statics(const struct backend_module *module);
CUresult cuda_function_find(struct backend_module *module, const char *name, bool gap,
	struct backend_function **ret_function, struct backend_function_info *ret_info);
CUresult cuda_global_find(
	struct backend_module *module, const char *name, bool gap, struct backend_global *ret_global);
CUresult cuda_function_list(
	struct backend_module *module, uint32_t from, const char **ret_names, uint32_t *count);
CUresult cuda_function_set(struct backend_function *function, uint32_t attribute, int64_t value);

/* channels.c */
CUresult cuda_fence(void);

/* builtin.c */
/** Puts a kernel of a library of the service's own on the device. Waits as a load of the driver's
 * does. */
CUresult cuda_kernel_load(
	CUlibrary library, const char *name, CUkernel *ret_kernel, CUfunction *ret_function);
/** Loads the service's own kernels; the context is current and nothing runs in it. Failing is not
 * fatal. */
void cuda_builtin_open(void);
/** True if a kernel with so many bytes of local memory can be launched without waiting for others.
 * Any thread. */
#define CUDA_NESTED_ROOM 8192 /* the need of a kernel that launches kernels. Measured (builtin.c) */
bool cuda_has_room(int bytes);
/** Makes the context ready for such kernels; that memory stays. Module thread, in a gap. Errors: as
 * of a launch. */
CUresult cuda_make_room(int bytes);
/** The same for kernels that call functions of the driver's. Any thread; module thread, in a gap.
 * Errors: as of a launch. */
bool cuda_has_calls(void);
CUresult cuda_make_calls(void);
CUresult cuda_check(
	struct backend_stream *stream, uint64_t address, uint64_t bytes, uint32_t pattern, uint32_t *word);

/** Writes the device's timer, ns, to a word of registered memory. Errors: CUDA_ERROR_NOT_SUPPORTED,
 * as of a launch. */
CUresult cuda_stamp(CUstream stream, uint64_t *word);

/* trial.c */
extern const struct trial_kernels cuda_trial;

/* clock.c */
/** Finds the place of the context's clock on the device's timer; the context is current and nothing
 * runs. Failing is not fatal: times are then known within this process, or not at all. */
void cuda_clock_open(void);
void cuda_clock_close(void);
/** A timed event was made. [any] */
void cuda_clock_want(void);
/** An event was recorded. [any] */
void cuda_clock_note(void);
CUresult cuda_event_time(struct backend_event *event, struct backend_time *ret_time);

/* launch.c */
CUresult cuda_launch(struct backend_stream *stream, const struct backend_launch *launch);
/**
 * Checks attributes and copies them in the driver's form.
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED for attributes that carry handles or are unknown
 * to this version
 */
CUresult cuda_attributes(
	const struct frmps_launch_attribute *attributes, uint32_t count, CUlaunchAttribute *ret_out);

/* Kernel parameters in one of the driver's two forms; not to be moved. */
#define CUDA_POINTERS_MAX 64u
#define CUDA_CARRIED_MAX  32768u /* bytes that a trampoline takes */
struct cuda_arguments {
	void *pointers[CUDA_POINTERS_MAX];
	void *extra[5];
	size_t bytes;
	void **params, **packed;
	uint8_t carried[CUDA_CARRIED_MAX];
};
void cuda_arguments_init(struct cuda_arguments *arguments, const struct backend_launch *launch);

/** Return: CUDA_SUCCESS for a launch, of a kernel that the service has loaded, that the driver
 * would accept. */
CUresult cuda_launch_check(const struct backend_launch *launch);
/** Dynamic shared memory, bytes, for the driver's call. */
uint32_t cuda_shared(const struct backend_function *function, uint64_t bytes);
/**
 * All attributes of a launch.
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE: too many, as cuda_attributes()
 */
#define CUDA_ATTRIBUTES_MAX (FRMPS_ATTRIBUTE_MAX + 4u)
CUresult cuda_launch_attributes(
	const struct backend_launch *launch, CUlaunchAttribute ret[CUDA_ATTRIBUTES_MAX], unsigned *ret_count);

/* graph.c */
CUresult cuda_graph_make(const struct backend_node *nodes, uint32_t count, uint32_t flags, uint64_t sms,
	struct backend_graph **ret_graph);
CUresult cuda_graph_free(struct backend_graph *graph);
CUresult cuda_graph_change(struct backend_graph *graph, uint32_t index, const struct backend_node *node);
CUresult cuda_graph_launch(struct backend_stream *stream, struct backend_graph *graph);

/* occupancy.c */
CUresult cuda_occupancy(struct backend_function *function, const struct wire_occupancy *query, uint64_t sms,
	uint64_t *ret_value);

/* copy.c */
CUresult cuda_copy(struct backend_stream *stream, const struct backend_copy *copy);
CUresult cuda_set(struct backend_stream *stream, const struct frmps_set *set);
/** A copy in the driver's general form. CUDA_ERROR_INVALID_VALUE for a copy that has no such
 * form. */
CUresult cuda_copy_form(const struct backend_copy *copy, CUDA_MEMCPY3D *ret_form);

/* sms.c */
/** Finds out how the device's multiprocessors can be given out; the context is current. Impossible
 * values stay 0. */
void cuda_sms_read(CUdevice device, struct backend_device *description);
CUresult cuda_sms_make(uint64_t sms);
/** Of a group that was made; NULL: there is none. */
CUcontext cuda_sms_context(uint64_t sms);
/** A stream of the group on which nothing ever runs, to ask by; NULL: there is none. */
CUstream cuda_sms_stream(uint64_t sms);
CUresult cuda_sms_stream_create(uint64_t sms, int32_t priority, CUstream *ret_stream);

/* stream.c */
/** Makes the streams that are to have the first queues. Before any other stream of the context. */
void cuda_stream_open(void);
/** Forgets the free streams: the context ends. */
void cuda_stream_close(void);
CUresult cuda_stream_create(int32_t priority, uint64_t sms, struct backend_stream **ret_stream);
CUresult cuda_stream_destroy(struct backend_stream *stream);
CUresult cuda_stream_query(struct backend_stream *stream);
CUresult cuda_event_create(bool timing, struct backend_event **ret_event);
CUresult cuda_event_destroy(struct backend_event *event);
CUresult cuda_event_record(struct backend_event *event, struct backend_stream *stream);
CUresult cuda_stream_wait(struct backend_stream *stream, struct backend_event *event);
CUresult cuda_write_value(struct backend_stream *stream, const struct frmps_write_value *write);
CUresult cuda_mark(struct backend_stream *stream, void *word, uint64_t value);

#endif
