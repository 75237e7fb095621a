// Common parts of the host backend, which the service loads (server/backend/find.c) in tests and in
// the demo, and which no package has: executors with it run programs' code. The device is this
// process: device memory is memfd pages mapped at fixed addresses, streams are queues for a pool
// of threads (pool.c), kernels are C functions of modules (kernel.h) and a kernel fault is a fault
// of the process (faults.c). The backend does the same things in the same order as a GPU, so
// everything above backend.h can be tested without a GPU.

#ifndef FRMPS_TESTS_HOST_HOST_H
#define FRMPS_TESTS_HOST_HOST_H

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>

#include "server/backend/backend.h"
#include "tests/host/kernel.h"
#include "shm/order.h"

extern const struct backend_ops backend_host;

/* Limits of the pretended device, as reported by its attributes. */
#define HOST_THREADS_MAX       1024u
#define HOST_BLOCK_Z_MAX       64u
#define HOST_GRID_X_MAX	       INT32_C(0x7fffffff)
#define HOST_GRID_YZ_MAX       65535u
#define HOST_SHARED_DEFAULT    49152u
#define HOST_SHARED_MAX	       232448u /* after function_set */
#define HOST_SHARED_SM	       233472u
#define HOST_SHARED_RESERVED   1024u
#define HOST_SMS	       4u
#define HOST_SM_GRANULE	       1u
#define HOST_SM_THREADS	       2048u
#define HOST_SM_BLOCKS	       32u
#define HOST_WARP	       32u
#define HOST_PRIORITY_GREATEST (-5)

/* Threads that work off streams, at most: so many kernels run at a time. */
#define HOST_WORKERS_MAX 64u

struct host_function {
	const struct host_kernel *kernel;
	struct backend_module *module;
	uint32_t argument_bytes;
	int32_t attributes[BACKEND_FUNC_ATTRS];
	bool is_settled; /* was looked up */
};

/* A record of an event. Waits name the record, not the event, so an event can be recorded again
 * meanwhile. */
struct host_record {
	unsigned refs;			/* pool lock */
	bool done;			/* pool lock */
	int64_t nanoseconds;		/* time of completion; CLOCK_MONOTONIC */
	struct backend_stream *waiting; /* parked streams, linked by `next`; pool lock */
};

struct backend_event {
	bool timing;
	struct host_record *latest; /* NULL: never recorded; pool lock */
};

enum host_work_kind {
	HOST_LAUNCH,
	HOST_COPY,
	HOST_SET,
	HOST_WRITE,
	HOST_CHECK,
	HOST_RECORD,
	HOST_WAIT,
	HOST_BRANCH
};

struct host_check {
	uint64_t address, bytes;
	uint32_t pattern, *word;
};

struct host_launch {
	const struct host_kernel *kernel;
	struct backend_module *module;
	struct host_grid grid;
	void **params; /* into the command's `bytes`, like the next */
	void *shared;
	word32 over; /* to be ended now (host_pool_end) */
};

struct host_work;

/* A condition of a graph: reads the word and runs one of the bodies. */
struct host_branch {
	uint64_t word;
	const word64 *over; /* not zero: no body runs */
	uint32_t kind, bodies;
	struct host_work **body; /* lists; behind the command */
};

/* A command in a stream's queue. */
struct host_work {
	struct host_work *next;
	enum host_work_kind kind;
	union {
		struct host_launch launch;
		struct backend_copy copy;
		struct frmps_set set;
		struct frmps_write_value write;
		struct host_check check;
		struct host_branch branch;
		struct host_record *record; /* a reference */
	};
	_Alignas(16) uint8_t bytes[];
};

/* pool.c: streams and their threads. All may be called by any thread. */
CUresult host_pool_init(void);
/** Ends the threads; those in a kernel are given a second and then left to the end of the
 * process. */
void host_pool_deinit(void);
/** Waits until everything that was issued is done; further commands wait until
 * host_pool_go_on(). */
void host_pool_stop(void);
void host_pool_go_on(void);
/** backend.h, kernels_end(). */
CUresult host_pool_end(const struct backend_ending *ending, char *ret_kernel);
/** Stops every running command at once, for good, and begins no other. */
CUresult host_pool_fence(void);
/** sms: passed to its kernels */
struct backend_stream *host_stream_new(uint64_t sms);
/** A stream that runs nothing: collects commands. */
struct backend_stream *host_stream_new_detached(uint64_t sms);
/** Frees the stream. NULL: nothing. Return: its commands, the first first */
struct host_work *host_stream_take_all(struct backend_stream *stream);
uint64_t host_stream_sms(const struct backend_stream *stream);
/** The stream is freed after all its work; the caller forgets the stream now. */
void host_stream_free(struct backend_stream *stream);
bool host_stream_idle(struct backend_stream *stream);
/** Allocates a command followed by `bytes` bytes; NULL without memory, and in a lost context. */
struct host_work *host_work_new(enum host_work_kind kind, size_t bytes);
/** Frees a command that is in no queue. */
void host_work_free(struct host_work *work);
/** Why there is none. */
CUresult host_work_error(void);
/** Appends a command, which is taken over; cannot fail. */
void host_stream_push(struct backend_stream *stream, struct host_work *work);
/** Makes `record` the event's latest and queues the record; queues a wait for the event's latest
 * record, if any. */
CUresult host_stream_push_record(
	struct backend_stream *stream, struct backend_event *event, struct host_work *work);
CUresult host_stream_push_wait(
	struct backend_stream *stream, struct backend_event *event, struct host_work *work);
void host_event_drop_latest(struct backend_event *event);
/** Time of the latest record. Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE (none),
 * CUDA_ERROR_NOT_READY */
CUresult host_event_time(struct backend_event *event, int64_t *ret_nanoseconds);

/* work.c: runs a command that is not a record or a wait; pool threads. */
void host_work_run(struct host_work *work);

/* faults.c */
/** Installs the handlers of this process. */
CUresult host_faults_init(void);
/** True if an environment variable has that value. While no thread changes the environment. */
bool host_is_set_to(const char *name, const char *value);
/** Gives the calling thread a stack for handlers, and removes that stack. */
void host_faults_enter_thread(void);
void host_faults_leave_thread(void);
/* Why a kernel led back: the result of sigsetjmp(). */
#define HOST_BACK_FAULT 1
#define HOST_BACK_ENDED 2
/**
 * Between begin and end, a fault of this thread is the kernel's: the handler leads back to the
 * place of sigsetjmp(back, 0); `back` stays valid until end. After leading back, all signals are
 * blocked, and the caller calls host_faults_back() instead of host_faults_end().
 */
void host_faults_begin(const struct host_launch *launch, sigjmp_buf *back);
void host_faults_end(void);
void host_faults_back(void);
/** Where the driver waits until nothing runs: behind a fault that may be for ever. Any thread. */
void host_faults_wait_for_idle(void);
/** For ending the kernel of a single thread. Installed with the other handlers. */
#define HOST_END_SIGNAL SIGURG
/** A kernel of this thread led back for a fault: applies the consequences. Before
 * host_faults_back(). */
void host_faults_settle(const struct host_launch *launch);
/** The result of every call in a lost context; CUDA_SUCCESS while the loss is not known. Any
 * thread. */
CUresult host_faults_code(void);
/** True if no queued work may begin any more. Any thread. */
bool host_faults_stopped(void);
/** Nothing runs at this moment. Any thread. */
void host_faults_idle(void);

/* memory.c */
uint64_t host_memory_total(void);
CUresult host_chunk_create(uint64_t bytes, uint64_t *ret_handle, int *ret_fd);
CUresult host_chunk_release(uint64_t handle);
CUresult host_window_reserve(uint64_t address, uint64_t bytes);
CUresult host_window_release(uint64_t address, uint64_t bytes);
CUresult host_chunk_map(uint64_t address, uint64_t bytes, int fd);
CUresult host_chunk_unmap(uint64_t address, uint64_t bytes);
/* Mappings of sinks in one process: Linux gives a process 65530 of any kind. */
#define HOST_SINK_MAPPINGS_MAX 32768u
CUresult host_sink_open(int fd, uint64_t bytes, struct backend_sink **ret_sink);
CUresult host_sink_close(struct backend_sink *sink);
CUresult host_sink_map(struct backend_sink *sink, uint64_t address);
CUresult host_sink_unmap(struct backend_sink *sink, uint64_t address);
CUresult host_host_register(void *address, uint64_t bytes);
CUresult host_host_unregister(void *address);
CUresult host_memory_info(uint64_t *ret_free, uint64_t *ret_total);
CUresult host_tensor_map(const struct wire_tensor_map *map, uint64_t ret_words[WIRE_TENSOR_MAP_WORDS]);
void host_memory_deinit(void);

/* array.c */
/* Objects of a process. */
#define HOST_OBJECTS_MAX 4096u
extern const struct host_object *const host_objects; /* HOST_OBJECTS_MAX */
CUresult host_array_make(const struct wire_array *form, struct backend_array **ret_array, uint64_t *ret_bytes,
	uint64_t *ret_alignment);
CUresult host_array_back(struct backend_array *array, const struct wire_back_array *memory, int fd);
CUresult host_array_free(struct backend_array *array);
CUresult host_object_make(const struct wire_object *form, struct backend_array *array, uint64_t *ret_value);
CUresult host_object_free(uint32_t kind, uint64_t value);
CUresult host_object_settle(void);
/** Turns the sides of a copy that are arrays into memory. */
void host_array_resolve(struct backend_copy *copy);

/* device.c */
int host_device_count(void);
void host_device_uuid(int device, uint8_t ret_uuid[16]);
/** How a device reaches the memory of another one (Device.peers). */
uint8_t host_device_peer(int device, int other);
void host_device_read(int device, struct backend_device *ret_device);
CUresult host_sms_make(uint64_t sms);
/** A group that was made, as bits of multiprocessors; for 0 all of them. 0: no such group. */
uint64_t host_sms_mask(uint64_t sms);
/* Of this process, as seen by kernels; by CUlimit. */
extern word64 host_limits[BACKEND_DEVICE_LIMITS];
CUresult host_limit_set(CUlimit limit, uint64_t value, uint64_t *ret_value);

/* module.c */
CUresult host_link_create(const struct wire_options *options, struct backend_link **ret_link);
CUresult host_link_add(struct backend_link *link, const struct backend_link_input *input);
CUresult host_link_complete(struct backend_link *link, const void **ret_image, size_t *ret_bytes);
void host_link_logs(const struct backend_link *link, const char **ret_errors, const char **ret_remarks);
CUresult host_link_destroy(struct backend_link *link);
CUresult host_module_compile(const void *image, size_t bytes, uint64_t room,
	const struct wire_options *options, char *log, size_t log_bytes, void **ret_code, size_t *ret_bytes);
CUresult host_module_load(struct backend_load *load, struct backend_module **ret_module);
CUresult host_module_unload(struct backend_module *module);
bool host_module_waits(const struct backend_module *module);
const struct statics *host_module_statics(const struct backend_module *module);
CUresult host_function_find(struct backend_module *module, const char *name, bool gap,
	struct backend_function **ret_function, struct backend_function_info *ret_info);
CUresult host_global_find(
	struct backend_module *module, const char *name, bool gap, struct backend_global *ret_global);
CUresult host_function_list(
	struct backend_module *module, uint32_t from, const char **ret_names, uint32_t *count);
CUresult host_function_set(struct backend_function *function, uint32_t attribute, int64_t value);

/* stream.c */
CUresult host_stream_create(int32_t priority, uint64_t sms, struct backend_stream **ret_stream);
CUresult host_stream_destroy(struct backend_stream *stream);
CUresult host_stream_query(struct backend_stream *stream);
CUresult host_stream_wait(struct backend_stream *stream, struct backend_event *event);
CUresult host_event_create(bool timing, struct backend_event **ret_event);
CUresult host_event_destroy(struct backend_event *event);
CUresult host_event_record(struct backend_event *event, struct backend_stream *stream);
CUresult host_event_read(struct backend_event *event, struct backend_time *ret_time);
CUresult host_write(struct backend_stream *stream, const struct frmps_write_value *write);
CUresult host_check_memory(
	struct backend_stream *stream, uint64_t address, uint64_t bytes, uint32_t pattern, uint32_t *word);
CUresult host_mark(struct backend_stream *stream, void *word, uint64_t value);
CUresult host_copy(struct backend_stream *stream, const struct backend_copy *copy);
CUresult host_set(struct backend_stream *stream, const struct frmps_set *set);

/* graph.c */
CUresult host_graph_make(const struct backend_node *nodes, uint32_t count, uint32_t flags, uint64_t sms,
	struct backend_graph **ret_graph);
CUresult host_graph_free(struct backend_graph *graph);
CUresult host_graph_change(struct backend_graph *graph, uint32_t index, const struct backend_node *node);
CUresult host_graph_launch(struct backend_stream *stream, struct backend_graph *graph);

static inline struct host_function *host_function(struct backend_function *function)
{
	return (struct host_function *)(void *)function;
}

/* launch.c */
CUresult host_launch(struct backend_stream *stream, const struct backend_launch *launch);
/** The same on another number of multiprocessors than the stream's. */
CUresult host_launch_on(struct backend_stream *stream, const struct backend_launch *launch, uint64_t sms);
/** Return: CUDA_SUCCESS for a launch that could be queued. */
CUresult host_launch_check(const struct backend_launch *launch);
CUresult host_occupancy(struct backend_function *function, const struct wire_occupancy *query, uint64_t sms,
	uint64_t *ret_value);

#endif
