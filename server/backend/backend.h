// The seam between the service and whatever runs kernels. A backend is a const table of operations;
// `cuda` drives the real driver (opened at run time), `host` runs kernels as C functions over memfd
// pages. Keeper and executors are the only users. A process uses a single backend, for one role and
// one device.
//
// Every operation returns a driver result code (CUresult, 0 = success). A code for which
// backend_is_fatal() is true means that the whole context is lost: the caller stops issuing and
// reports (executor/lost.c). Objects are opaque pointers owned by the backend; after the loss of
// the context the caller never uses them again.
//
// Threads: operations marked [any] may be called by several threads at once; the others by a single
// thread at a time per object. Every thread calls thread_enter() once before anything else.

#ifndef FRMPS_SERVER_BACKEND_BACKEND_H
#define FRMPS_SERVER_BACKEND_BACKEND_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/command.h"
#include "protocol/cuda_abi.h"
#include "protocol/place.h"
#include "protocol/wire.h"
#include "server/backend/load_reason.h"
#include "server/backend/unfit.h"
#include "shm/order.h"

struct backend_stream;
struct backend_event;
struct backend_module;
struct backend_function;
struct backend_sink;
struct backend_graph;
struct backend_link;
struct backend_array;
struct statics;

#define BACKEND_PARAMS_MAX    4096u
#define BACKEND_FUNC_ATTRS    16u
#define BACKEND_DEVICE_ATTRS  256u
#define BACKEND_DEVICE_LIMITS 16u
#define BACKEND_NO_LIMIT      UINT64_MAX
#define BACKEND_KERNEL_BYTES  128u /* of a kernel's name, cut if longer */

/* Granularity of device memory chunks, bytes: sizes of chunks and addresses of their mappings are
 * multiples. */
#define BACKEND_CHUNK_GRANULE (UINT64_C(2) << 20)

/* Properties of the device that programs may query, read once at start. */
struct backend_device {
	char name[256];
	uint8_t uuid[16];
	int32_t attributes[BACKEND_DEVICE_ATTRS]; /* by CUdevice_attribute; 0 where the driver refuses */
	uint64_t limits[BACKEND_DEVICE_LIMITS];	  /* by CUlimit; BACKEND_NO_LIMIT where the driver has none */
	uint64_t total_bytes;
	int32_t priority_least, priority_greatest;
	int32_t driver_version;
	/* Multiprocessors are given to streams in units of sm_granule, of which there are sm_units;
	 * 0: unsupported. Those outside all units can be given as well, together. */
	uint32_t sm_granule, sm_units;
};

/* A group of multiprocessors: bit i: contains unit i; bit sm_units: contains those outside all
 * units. 0: all of the device's. */
#define BACKEND_SMS(first, units) ((units) ? UINT64_MAX >> (64 - (units)) << (first) : 0)
#define BACKEND_SMS_UNITS(sms)	  ((uint32_t)__builtin_popcountll(sms))
#define BACKEND_SM_UNITS_MAX	  64u
/* More than an executor makes, unless an operator changes partitions again and again (cap.c). */
#define BACKEND_SM_GROUPS_MAX 512u

/* The shapes of launches that a kernel allows, which no attribute of the driver's says. */
struct backend_shape {
	uint32_t block[3];     /* the only size of a block; 0: any */
	uint32_t cluster_most; /* blocks of a cluster; 0: as many as the device allows */
	bool counts_clusters;  /* the grid's size is that in clusters */
};

/* Parameter layout and attributes of a kernel. A truncated copy may end after the last parameter:
 * nobody reads beyond param_count. */
struct backend_function_info {
	uint32_t param_count;
	uint32_t argument_bytes; /* end of the last parameter */
	int32_t attributes[BACKEND_FUNC_ATTRS];
	struct backend_shape shape;
	struct {
		uint32_t offset, size;
	} params[BACKEND_PARAMS_MAX];
};

/* A checked launch: everything in executor-private or journal memory that no client can write. */
struct backend_launch {
	struct backend_function *function;
	const struct backend_function_info *info;
	uint32_t grid[3], block[3];
	uint32_t shared_bytes;
	const uint8_t *arguments; /* argument_bytes packed bytes */
	uint32_t argument_bytes;
	const struct frmps_launch_attribute *attributes;
	uint32_t attribute_count;
	bool cooperative;
};

/* Where the box of a copy begins in an array. */
struct backend_place {
	struct backend_array *array; /* NULL: the side is memory */
	uint32_t level;
	uint64_t x, y, z; /* byte of a row, row, plane */
};

/* A checked copy; addresses are valid in this process (arena offsets already resolved). */
struct backend_copy {
	uint64_t dst, src;
	uint64_t width, height, depth;
	uint64_t dst_pitch, src_pitch, dst_rows, src_rows;
	bool dst_is_host, src_is_host;	     /* pinned host memory of the session, else device memory */
	struct backend_place dst_at, src_at; /* all other properties of an array's side are ignored */
};

/* A checked node of a graph. Its pointers stay valid until the graph is freed, and their targets
 * unchanged but for graph_change(). */
struct backend_node {
	uint16_t op;   /* FRMPS_OP_LAUNCH, COPY (also of arrays), SET, CONDITION; PAD does nothing */
	bool disabled; /* does nothing for now */
	uint32_t edge_count;
	const struct frmps_graph_edge *edges; /* to earlier nodes */
	/* COPY, SET: the destination, device memory, is copied on to this address, before any
	 * following node; 0: no copy. LAUNCH: the same with `store_bytes` at `store`, where the
	 * kernel may write */
	uint64_t onto;
	uint64_t store, store_bytes;
	const word64 *over; /* CONDITION: in registered memory: not zero ends loops */
	uint64_t sms;	    /* LAUNCH: a group that was made; 0: as the other nodes */
	union {
		struct backend_launch launch;
		struct backend_copy copy;
		const struct frmps_set *set;
		const struct frmps_condition *condition; /* followed by the nodes of the bodies
							  * (protocol/command.fbs) */
	};
};

/* Device name is empty where the probe failed; text has the reason in one sentence for the
 * operator. */
struct backend_probe {
	char text[256];
	int32_t device_count;	      /* PLACE_DEVICES at most */
	uint64_t exclusive;	      /* bit i: device i allows a context to one process alone */
	uint8_t unfit[PLACE_DEVICES]; /* enum unfit: why device i cannot be served */
	uint8_t uuids[PLACE_DEVICES][16];
	/* [a][b]: how device a reaches memory of device b (Device.peers, protocol/control.fbs) */
	uint8_t peers[PLACE_DEVICES][PLACE_DEVICES];
};

/* Output of a module's kernels. */
struct backend_text {
	uint64_t ring; /* address of the ring for output (shm/text.h) */
	uint64_t uses; /* answered: kinds of output (SHM_TEXT_PRINTS, …). The ring must exist before the
			* kernels run */
};

/* An input of the device linker. */
struct backend_link_input {
	uint32_t type;	/* CUjitInputType */
	const void *at; /* private to the caller; may go after the call */
	size_t bytes;
	const char *name;
	const struct wire_options *options; /* of this input alone */
};

/* A block of a client's device memory for the variables of one module, and for mirrors of its
 * constants: the client uses the block's addresses, and a writer of a mirror copies the value to
 * the constant. */
struct backend_variables {
	uint64_t at;	/* address; 0: there is none yet */
	uint64_t bytes; /* of the block; 0: empty: the module has no variables, or they stay in the context */
	uint8_t *first; /* the block's content before the first kernel runs, on the heap, the caller's */
	bool is_managed; /* out, with the bytes: the block belongs in managed memory */
};

/* A module to load. */
struct backend_load {
	const void *image; /* private to the caller */
	size_t bytes;
	const struct wire_options *options; /* NULL: none */
	/* Destination of the kernels' output, and whether there is any; NULL: the backend's
	 * default. */
	struct backend_text *text;
	struct backend_variables *variables; /* destination of its variables; NULL: the context */
	/* The session's own window: lasting addresses in the context are distinct from those of all
	 * other sessions, in any executor. 0: no session. */
	uint64_t window;
	/* In and out: address of the code; WIRE_CODE_ASKED: any; WIRE_CODE_OF_DRIVER: chosen by the
	 * driver. Another executor must load the code at the first executor's address, and refuses
	 * the module if that is taken. */
	uint64_t code;
	uint64_t room;		 /* bytes that compressed code may unpack to */
	uint64_t unpacked;	 /* out: bytes that it unpacks to */
	uint64_t constants;	 /* out: address of constants in a bank; 0: there is none */
	enum load_reason reason; /* out: why the driver loads the module */
	char *log;		 /* text, NUL-terminated; NULL: none */
	size_t log_bytes;
};

/* The result of a lookup by name. */
struct backend_global {
	uint64_t address, bytes;
	/* A constant that has its mirror at the address (backend_variables): where kernels read the
	 * constant. 0: no constant */
	uint64_t constant;
};

/* Questions of kernels_end() to its caller, once and in this order, while all kernels stand still.
 * The rules are those of struct backend_watch. */
struct backend_ending {
	/* The modules to end kernels of, as of that moment, for free(). NULL: none */
	struct backend_module **(*list)(void *context, uint32_t *ret_count);
	/* Permission to end the kernels. @waits: no kernel of these modules is on the device, and a
	 * kernel of others is. NULL: permitted */
	bool (*may_end)(void *context, bool waits);
	void *context;
};

/* When the device came to a timed event, ns. */
struct backend_time {
	int64_t local; /* of a clock of this process: differences of times are the driver's */
	int64_t device; /* of the device's timer, which all processes share, to some microseconds; 0: not known */
};

struct backend_ops {
	const char *name; /* "cuda"; another of one that is loaded */

	/* Kernels for the proof that faults are contained (trial.h); NULL: nothing to prove. */
	const struct trial_kernels *trial;

	/* Checks if this machine can run the backend at all: driver there, new enough, a
	 * device; and which devices can be served. Takes no context. */
	CUresult (*probe)(struct backend_probe *ret_probe);

	/* Role start. open_keeper: memory only, never a context. open_executor: the context of this
	 * process. open_compiler: only as much as module_compile and the linker need; no other role
	 * may pass clients' input to these. @arch: of the device: 10 * major + minor. */
	CUresult (*open_keeper)(int device);
	CUresult (*open_compiler)(unsigned arch);
	CUresult (*open_executor)(int device, struct backend_device *ret_device);
	void (*close)(void);
	CUresult (*thread_enter)(void);
	/* Takes this process off the device, for good. On CUDA_SUCCESS nothing of this process runs
	 * there any more, kernels that do not end included: no write of its context can land any
	 * more. Otherwise nothing is certain. The caller must not use the backend afterwards. Does
	 * not wait for threads that are inside the backend. [any] */
	CUresult (*fence)(void);

	/* Lets a thread of this process log its present calls, for finding out why the thread does
	 * not answer, and go on. Does not wait for the thread. Optional for a backend. [any] */
	void (*thread_show)(pthread_t thread);

	/* Ends the kernels of some modules that are on the device at this moment: each ends at
	 * once, and its stream goes on as after any other kernel. All other kernels go on as well,
	 * after a stop of 10 to 40 ms. The caller launches no kernel of these modules any more;
	 * those that the device has not begun may need a further call. The modules are names, not
	 * to be dereferenced: a module that was unloaded before the stop may be another program's
	 * by then. The calling thread need not have called thread_enter(), and holds no lock: a
	 * fault that is found meanwhile is reported by the calling thread (struct backend_watch).
	 * CUDA_ERROR_NOT_SUPPORTED where the backend cannot: without `ending` this is only a query.
	 * [any] ret_kernel: BACKEND_KERNEL_BYTES, the name of a kernel that was on the device;
	 * empty if there was none, or none was to be ended. */
	CUresult (*kernels_end)(const struct backend_ending *ending, char *ret_kernel);

	/* Keeper. The descriptor is the caller's; the handle stays valid until chunk_release. The
	 * memory is zero, whatever its earlier use: nobody else clears the memory. The memory
	 * outlives this process as long as anybody has the descriptor or a mapping. */
	CUresult (*chunk_create)(uint64_t bytes, uint64_t *ret_handle, int *ret_fd);
	CUresult (*chunk_release)(uint64_t handle);

	/* Address space of a session's device part; exact address or error. [any] */
	CUresult (*window_reserve)(uint64_t address, uint64_t bytes);
	CUresult (*window_release)(uint64_t address, uint64_t bytes);
	/* Maps a chunk's descriptor (not consumed) read-write at an exact address inside a window.
	 * [any] */
	CUresult (*chunk_map)(uint64_t address, uint64_t bytes, int fd);
	CUresult (*chunk_unmap)(uint64_t address, uint64_t bytes);
	/* A sink is a chunk that is mapped again and again, for guard.c, as a whole, at exact
	 * addresses inside a window. The descriptor is not consumed. Mappings outlive sink_close().
	 * [any] */
	CUresult (*sink_open)(int fd, uint64_t bytes, struct backend_sink **ret_sink);
	CUresult (*sink_close)(struct backend_sink *sink);
	CUresult (*sink_map)(struct backend_sink *sink, uint64_t address);
	CUresult (*sink_unmap)(struct backend_sink *sink, uint64_t address);
	/* Mappings of sinks that a process may have at a time; UINT32_MAX: any number. */
	uint32_t sink_mappings_max;
	/* Pins process memory so that the device accesses the memory at the same address. [any] */
	CUresult (*host_register)(void *address, uint64_t bytes);
	CUresult (*host_unregister)(void *address);
	/* Sets a limit of the context, and returns the new value. Waits until nothing runs, and
	 * blocks everybody meanwhile. Errors: as cuCtxSetLimit. */
	CUresult (*limit_set)(CUlimit limit, uint64_t value, uint64_t *ret_value);
	CUresult (*memory_info)(uint64_t *ret_free, uint64_t *ret_total);
	/* Computes; touches no device. @map: ranks and counts fit the map's kind. [any] */
	CUresult (*tensor_map)(const struct wire_tensor_map *map, uint64_t ret_words[WIRE_TENSOR_MAP_WORDS]);

	/* The device linker. These may take seconds and block nobody. Image and logs are valid
	 * until the link is destroyed; the logs cover all calls on the link so far. */
	CUresult (*link_create)(const struct wire_options *options, struct backend_link **ret_link);
	CUresult (*link_add)(struct backend_link *link, const struct backend_link_input *input);
	CUresult (*link_complete)(struct backend_link *link, const void **ret_image, size_t *ret_bytes);
	void (*link_logs)(const struct backend_link *link, const char **ret_errors, const char **ret_remarks);
	CUresult (*link_destroy)(struct backend_link *link);

	/* Modules. The first use of a module that module_waits() names waits for everything on the
	 * device, and blocks everybody else meanwhile. So lookups take `gap`: true if the caller
	 * has let the device run empty; a lookup that needs a gap and has none changes nothing and
	 * returns CUDA_ERROR_NOT_READY. module_unload of such a module always belongs into a gap;
	 * of any other, after the end of its kernels. A single thread calls all of these but the
	 * first. */

	/* Compiles a text, or a fat binary of texts, for seconds at times, and blocks nobody. room:
	 * bytes that a compressed text may unpack to. ret: code for the device, on the heap. log:
	 * as below. [any] */
	CUresult (*module_compile)(const void *image, size_t bytes, uint64_t room,
		const struct wire_options *options, char *log, size_t log_bytes, void **ret_code,
		size_t *ret_bytes);
	/* Blocks nobody. The image may be freed after the call. CUDA_ERROR_NOT_READY:
	 * load->variables->bytes is the required size of the block.
	 * CUDA_ERROR_JIT_COMPILER_NOT_FOUND: the image must be compiled first. */
	CUresult (*module_load)(struct backend_load *load, struct backend_module **ret_module);
	CUresult (*module_unload)(struct backend_module *module);
	/* True if lookups and unloading may wait for everything on the device. [any] */
	bool (*module_waits)(const struct backend_module *module);
	/* The state that the module's kernels can leave in the context; valid until the module is
	 * unloaded. */
	const struct statics *(*module_statics)(const struct backend_module *module);
	/* Afterwards the function is on the device, with local memory: no launch loads anything or
	 * waits. Needs a gap at the first lookup. */
	CUresult (*function_find)(struct backend_module *module, const char *name, bool gap,
		struct backend_function **ret_function, struct backend_function_info *ret_info);
	CUresult (*global_find)(
		struct backend_module *module, const char *name, bool gap, struct backend_global *ret_global);
	/* Names of kernels without the first `from`, valid until the module is unloaded: at most
	 * *count, which becomes the number of all kernels. */
	CUresult (*function_list)(
		struct backend_module *module, uint32_t from, const char **ret_names, uint32_t *count);
	/* attribute 1000: cache configuration. */
	CUresult (*function_set)(struct backend_function *function, uint32_t attribute, int64_t value);
	/* sms: of the streams that are meant. */
	CUresult (*occupancy)(struct backend_function *function, const struct wire_occupancy *query,
		uint64_t sms, uint64_t *ret_value);

	/* Arrays, textures and surfaces. Making an array blocks nobody; freeing an array makes the
	 * driver wait for everything on the device, so freeing belongs into a gap. A single thread
	 * calls all of these. */

	/* ret_bytes, ret_alignment: of the memory that the array needs before any use. */
	CUresult (*array_make)(const struct wire_array *form, struct backend_array **ret_array,
		uint64_t *ret_bytes, uint64_t *ret_alignment);
	/* @fd: a chunk's descriptor (not consumed), of memory->span bytes. The array keeps a
	 * reference. Once: memory of a failed try is freed with the array. */
	CUresult (*array_back)(struct backend_array *array, const struct wire_back_array *memory, int fd);
	CUresult (*array_free)(struct backend_array *array);
	/* A texture or surface object over an array, or over memory (NULL). The value identifies
	 * the object for kernels, is never 0, and is unique in the context. */
	CUresult (*object_make)(
		const struct wire_object *form, struct backend_array *array, uint64_t *ret_value);
	CUresult (*object_free)(uint32_t kind, uint64_t value);
	/* Makes the next object likely to get the value that was freed last. Only while nothing of
	 * this process is on the device. */
	CUresult (*object_settle)(void);

	/* Makes a group of multiprocessors, for good; twice is fine. Waits for everything on the
	 * device, and blocks everybody else meanwhile: belongs into a gap. Single thread.
	 * CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE: there is no such group. */
	CUresult (*sms_make)(uint64_t sms);

	/* Streams: always non-blocking towards everything else in the context. sms: the group for
	 * kernels of the stream, which was made before, or 0. */
	CUresult (*stream_create)(int32_t priority, uint64_t sms, struct backend_stream **ret_stream);
	CUresult (*stream_destroy)(struct backend_stream *stream);
	/* CUDA_SUCCESS: everything issued is done; CUDA_ERROR_NOT_READY; or a fatal code. */
	CUresult (*stream_query)(struct backend_stream *stream);

	CUresult (*event_create)(bool timing, struct backend_event **ret_event);
	CUresult (*event_destroy)(struct backend_event *event);
	CUresult (*event_record)(struct backend_event *event, struct backend_stream *stream);
	/* Of the latest record. CUDA_ERROR_NOT_READY; CUDA_ERROR_INVALID_HANDLE: without timing, or
	 * never recorded. Waits for nothing. [any] */
	CUresult (*event_time)(struct backend_event *event, struct backend_time *ret_time);
	CUresult (*stream_wait)(struct backend_stream *stream, struct backend_event *event);

	/* Work, in stream order; none of these waits for the device. */
	CUresult (*launch)(struct backend_stream *stream, const struct backend_launch *launch);
	CUresult (*copy)(struct backend_stream *stream, const struct backend_copy *copy);
	CUresult (*set)(struct backend_stream *stream, const struct frmps_set *set);
	CUresult (*write_value)(struct backend_stream *stream, const struct frmps_write_value *write);
	/* Writes 1 to `word`, in registered host memory, if any 32-bit word of a device range
	 * differs from `pattern`; otherwise nothing. Address and size are multiples of
	 * BACKEND_CHUNK_GRANULE. Does not wait, like the others. CUDA_ERROR_NOT_SUPPORTED where the
	 * backend cannot: with zero bytes this is only a query. */
	CUresult (*check)(struct backend_stream *stream, uint64_t address, uint64_t bytes, uint32_t pattern,
		uint32_t *word);
	/* Graphs. Nodes run in the order of their edges, kernels on multiprocessors `sms` or their
	 * own, whatever the launch's stream has. A launch is work in stream order like the above;
	 * two launches of the same graph run one after the other. graph_free while nothing of the
	 * graph runs. CUDA_ERROR_NOT_SUPPORTED: of conditions, where the backend cannot.
	 * graph_make, graph_free: [any] */
	CUresult (*graph_make)(const struct backend_node *nodes, uint32_t count, uint32_t flags, uint64_t sms,
		struct backend_graph **ret_graph);
	CUresult (*graph_free)(struct backend_graph *graph);
	/* Changes a node of a graph with FRMPS_GRAPH_CHANGES for launches from now on: op, edges
	 * and the presence of `onto` are as before; for a disabled node nothing else is read. A
	 * change that is refused has no effect. */
	CUresult (*graph_change)(
		struct backend_graph *graph, uint32_t index, const struct backend_node *node);
	CUresult (*graph_launch)(struct backend_stream *stream, struct backend_graph *graph);
	/* Writes a 64-bit completion mark into registered host memory. */
	CUresult (*mark)(struct backend_stream *stream, void *word, uint64_t value);
};

/* The backend of the product; NULL ops: not built. */
extern const struct backend_ops backend_cuda;

/* The operations in a backend that is loaded: a struct backend_ops. */
#define BACKEND_SYMBOL "backend_loaded"

/** Finds a backend: "cuda", or the one in a shared object, which is loaded for good. @name: an
 * absolute path, or NAME of NAME_backend.so, for which the dynamic linker searches. Return: NULL if
 * there is none (dlerror()) */
const struct backend_ops *backend_find(const char *name);

/** The copy, to another address, of the data that a copy into device memory, or a set, has
 * written. */
struct backend_copy backend_copy_on(const struct backend_copy *copy, uint64_t to);
struct backend_copy backend_set_on(const struct frmps_set *set, uint64_t to);
struct backend_copy backend_node_on(const struct backend_node *node);

/** The group with every multiprocessor of the device. */
uint64_t backend_all_sms(const struct backend_device *device);
/** How many multiprocessors a group has, which is not 0. */
uint32_t backend_sms_count(const struct backend_device *device, uint64_t sms);

/** True if a code means that the context is lost for good. */
bool backend_is_fatal(CUresult code);

/** True if the code means a fatal error that the hardware caused and no kernel. */
bool backend_is_of_device(CUresult code);

/* Last words: an executor's knowledge about its own end. A page shared with the daemon has up to
 * LAST_WORDS_MAX entries (the executor writes, the daemon reads from the first sign of a fault on):
 * one for each kernel that faulted, or the first when a call returns a fatal code. */
struct last_words {
	uint32_t magic;	      /* LAST_WORDS_MAGIC once valid, written last */
	int32_t code;	      /* CUresult */
	uint64_t session;     /* culprit, 0 = not known */
	uint32_t fault;	      /* this executor's number of the fault; 0: not counted */
	uint64_t instruction; /* that faulted; 0: not known */
	char kernel[128];
};
#define LAST_WORDS_MAGIC UINT32_C(0x6c773031)
#define LAST_WORDS_MAX	 8u

/* Set by the executor before open_executor; NULL: nobody listens. */
extern struct last_words *backend_last_words; /* LAST_WORDS_MAX */

/* A kernel that faulted, as far as the backend knows. */
struct backend_fault {
	struct backend_module *module; /* a name, not to be looked into; NULL: none that is loaded here */
	CUresult code;
	uint64_t address; /* of the instruction; 0: not known */
	uint64_t launch;  /* its ordinal in the context; 0: unknown */
	uint32_t block[3];
	bool has_block;
	char kernel[128]; /* empty: not known */
};
#define BACKEND_FAULTS_MAX 8u

/*
 * Reports of a backend that can contain faults, in a thread of its own, one call at a time, while
 * the device stands still or other clients wait. So a callback is short (2 ms), calls neither
 * backend nor driver, and takes no lock that is held anywhere across a call of the backend: the
 * thread inside that call may wait for the thread of the callback.
 *
 *   suspected    the first sign, before the completion word after a kernel that faulted can arrive
 *                (but for few cases). Nothing follows if there was no fault
 *   stopped      a fault; contained or uncontained will follow
 *   contained    before the device goes on: these kernels are over, everything else goes on as if
 *                nothing had happened. Their completion words still arrive. Up to
 *                BACKEND_FAULTS_MAX, all with a module; 0: nothing has faulted since the last time
 *   uncontained  the context will end. 0 to BACKEND_FAULTS_MAX kernels that faulted, those without
 *                a module among them; 0: unknown
 */
struct backend_watch {
	void (*suspected)(void *context);
	void (*stopped)(void *context);
	void (*contained)(void *context, const struct backend_fault *faults, uint32_t count);
	void (*uncontained)(void *context, const struct backend_fault *faults, uint32_t count);
	void *context;
};

/* Set by the executor once it is ready for reports; NULL: nobody watches, and nothing is
 * contained. */
extern const struct backend_watch *_Atomic backend_watch;

/* True if every fault shows by these calls. Set by open_executor. */
extern bool backend_contains;

/* True if this process serves programs; false in tools. Set before open_executor. */
extern bool backend_is_served;

/* True if kernels' faults are left to the driver, because the trial has failed. Set before
 * open_executor. */
extern bool backend_is_unproved;

#endif
