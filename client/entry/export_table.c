// cuGetExportTable: the unnamed functions that NVIDIA's own libraries call beside the public
// interface. Runs on the program's threads, also before cuInit, and always locally. Owns constant
// tables: callers keep the returned pointer, so a table has the same address for the life of the
// process.
//
// A table is an array of words: word 0 is its size in bytes, functions stand from word 1 on. Only
// the table for context-local storage has a function in word 0. Observing the libraries has shown
// which slots must work; comments say what these mean. Every other slot returns
// CUDA_ERROR_NOT_SUPPORTED: a caller that uses an unknown slot gets an error instead of a jump to
// 0. Sizes are those of the real driver (13.0), because callers compare the size word before they
// trust a slot.
//
// For an unknown table the call returns CUDA_ERROR_INVALID_VALUE, as the driver (580) does.
// Profilers stop there, on purpose: CUPTI then answers each call with CUPTI_ERROR_UNKNOWN.
// Otherwise a profiler would attach to this library and see nothing.

#include "client/entry/api.h"
#include "client/link/integrity.h"
#include "client/state/cls.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/log.h"
#include "protocol/shim_uuid.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Word 0 and the other words. Functions and data pointers have the same size on every machine that
 * CUDA runs on. */
#define TABLE_BYTES(table)	   ((const void *)sizeof(table))
#define SLOT(function)		   ((const void *)(function))
#define REFUSED_SLOTS(first, last) [first... last] = SLOT(slot_refused)

/* Every slot without a known meaning. Callers pass up to six words, which the function ignores. */
static CUresult slot_refused(void)
{
	static atomic_bool said;

	if (!atomic_exchange_explicit(&said, true, memory_order_relaxed))
		client_log(CLIENT_LOG_INFO, "an unknown slot of an export table was called and refused");
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* A context argument may be left out (NULL) or say "current" (-1). NULL where there is no such
 * context. */
static CUcontext context_argument(CUcontext context)
{
	if (!context || context == (CUcontext)-1)
		return context_current();
	return context;
}

/*
 * The runtime's own table. [2]: the handle of a device's primary context, which the runtime makes
 * current before a retain; the question must not activate the context. The other slots load modules
 * for runtimes older than CUDA 12.
 */
static CUresult runtime_primary(CUcontext *ret_context, CUdevice device)
{
	CUcontext context = context_primary(device);

	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return device_count() ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_NOT_INITIALIZED;
	*ret_context = context;
	return CUDA_SUCCESS;
}

static const void *const runtime_table[13] = {
	TABLE_BYTES(runtime_table),
	REFUSED_SLOTS(1, 1),
	[2] = SLOT(runtime_primary),
	REFUSED_SLOTS(3, 12),
};

/*
 * Callback tables for tools. [2] and [6] return arrays in which the runtime looks for non-zero
 * entries; all zero means that no tool is attached. The entries' width is unknown, so the arrays
 * are of whole words.
 */
static uint64_t hooks_functions[1024];
static uint64_t hooks_domains[14];

static void hooks_get_functions(void **ret_array, size_t *ret_count)
{
	*ret_array = hooks_functions;
	*ret_count = sizeof(hooks_functions) / sizeof(hooks_functions[0]);
}

static void hooks_get_domains(void **ret_array, size_t *ret_count)
{
	*ret_array = hooks_domains;
	*ret_count = sizeof(hooks_domains) / sizeof(hooks_domains[0]);
}

static const void *const hooks_table[7] = {
	TABLE_BYTES(hooks_table),
	REFUSED_SLOTS(1, 1),
	[2] = SLOT(hooks_get_functions),
	REFUSED_SLOTS(3, 5),
	[6] = SLOT(hooks_get_domains),
};

/* [2]: the calling thread's current context, as cuBLAS asks before each call. */
static CUresult thread_get_context(CUcontext *ret_context)
{
	if (!ret_context)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_context = context_current();
	return *ret_context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static const void *const thread_table[3] = {
	TABLE_BYTES(thread_table),
	REFUSED_SLOTS(1, 1),
	[2] = SLOT(thread_get_context),
};

/*
 * Context-local storage. A failing "get" tells the runtime that the context is new, so these
 * failures are ordinary and not logged.
 */
static struct cls_map *storage(CUcontext context)
{
	context = context_argument(context);
	return context ? context_cls(context) : NULL;
}

static CUresult storage_put(CUcontext context, void *key, void *value, cls_destructor *destructor)
{
	struct cls_map *map = storage(context);

	return map ? cls_map_put(map, key, value, destructor) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult storage_delete(CUcontext context, void *key)
{
	struct cls_map *map = storage(context);

	if (!map)
		return CUDA_ERROR_INVALID_HANDLE;
	cls_map_delete(map, key);
	return CUDA_SUCCESS;
}

static CUresult storage_get(void **ret_value, CUcontext context, void *key)
{
	struct cls_map *map = storage(context);

	if (!ret_value)
		return CUDA_ERROR_INVALID_VALUE;
	return map ? cls_map_get(map, key, ret_value) : CUDA_ERROR_INVALID_HANDLE;
}

static const void *const storage_table[4] = {
	SLOT(storage_put),
	SLOT(storage_delete),
	SLOT(storage_get),
	SLOT(slot_refused),
};

/* [2]: the kind of a context, 0: ordinary, 1: green, then with its primary context, for which
 * cudaDeviceSynchronize() waits. The runtime asks [3] once per runtime instance. */
static CUresult checks_context(CUcontext context, uint32_t *ret_kind, CUcontext *ret_primary)
{
	bool green = context_green(context);

	if (ret_kind)
		*ret_kind = green;
	if (ret_primary)
		*ret_primary = green ? context_owner(context) : NULL;
	return CUDA_SUCCESS;
}

static CUresult checks_process(void)
{
	return CUDA_SUCCESS;
}

static const void *const checks_table[15] = {
	TABLE_BYTES(checks_table),
	REFUSED_SLOTS(1, 1),
	[2] = SLOT(checks_context),
	[3] = SLOT(checks_process),
	REFUSED_SLOTS(4, 14),
};

/* The start-up check (client/link/integrity.h). The digest covers these tables' addresses, as the
 * runtime knows them. */
static CUresult integrity_ask(uint32_t version, uint64_t seconds, uint8_t *ret_digest);

static const void *const integrity_table[3] = {
	TABLE_BYTES(integrity_table),
	SLOT(integrity_ask),
	SLOT(slot_refused),
};

static bool devices_list(struct integrity_device *devices, int count)
{
	for (int i = 0; i < count; i++) {
		struct integrity_device *d = &devices[i];

		if (!device_identity(i, d->uuid, &d->domain, &d->bus, &d->device))
			return false;
	}
	return true;
}

static CUresult integrity_ask(uint32_t version, uint64_t seconds, uint8_t *ret_digest)
{
	const struct integrity_facts facts = {
		.driver_version = CUDA_ABI_VERSION,
		.version = version,
		.pid = (uint32_t)getpid(),
		.thread = (uint32_t)(uintptr_t)pthread_self(),
		.runtime_table = (uintptr_t)runtime_table,
		.integrity_table = (uintptr_t)integrity_table,
		.integrity_function = (uintptr_t)integrity_ask,
		.seconds = seconds,
	};
	struct integrity_device *devices;
	int count = device_count();
	bool listed;

	if (!ret_digest)
		return CUDA_ERROR_INVALID_VALUE;
	devices = calloc((size_t)count + 1, sizeof(*devices));
	if (!devices)
		return CUDA_ERROR_OUT_OF_MEMORY;
	listed = devices_list(devices, count);
	if (listed)
		integrity_answer(&facts, devices, (size_t)count, ret_digest);
	free(devices);
	return listed ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/*
 * Tools' view of contexts and streams; cuBLAS and cuFFT number both with this table. [4]: the id of
 * a context. [51] turns a stream into a token and [39] a token into the stream's id; the token is
 * the id itself.
 */
static CUresult tools_context_id(CUcontext context, uint64_t *ret_id)
{
	context = context_argument(context);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ret_id)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context_is_live(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_id = context_id(context);
	return CUDA_SUCCESS;
}

static CUresult tools_stream_token(CUcontext context, CUstream stream, void **ret_token)
{
	uint64_t id;

	context = context_argument(context);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ret_token)
		return CUDA_ERROR_INVALID_VALUE;
	id = stream_unique_id(context, stream);
	if (!id)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_token = (void *)(uintptr_t)id;
	return CUDA_SUCCESS;
}

static CUresult tools_stream_id(CUcontext context, void *token, uint64_t *ret_id)
{
	(void)context;
	if (!token || !ret_id)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_id = (uintptr_t)token;
	return CUDA_SUCCESS;
}

static const void *const tools_context_table[93] = {
	TABLE_BYTES(tools_context_table),
	REFUSED_SLOTS(1, 3),
	[4] = SLOT(tools_context_id),
	REFUSED_SLOTS(5, 38),
	[39] = SLOT(tools_stream_id),
	REFUSED_SLOTS(40, 50),
	[51] = SLOT(tools_stream_token),
	REFUSED_SLOTS(52, 92),
};

/*
 * Tools' view of modules; cuFFT walks the functions of the module of a plan. [7] calls the visitor
 * for each function and returns their number. 0 also stands for an invalid module: the slot has no
 * other way to fail.
 */
typedef void module_visitor(void *user, CUfunction function);

static int tools_module_functions(CUcontext context, CUmodule module, module_visitor *visit, void *user)
{
	CUfunction *functions;
	unsigned int count;

	(void)context;
	if (!visit || cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS || !count)
		return 0;
	functions = calloc(count, sizeof(*functions));
	if (!functions)
		return 0;
	if (cuModuleEnumerateFunctions(functions, count, module) != CUDA_SUCCESS)
		count = 0;
	for (unsigned int i = 0; i < count; i++)
		visit(user, functions[i]);
	free(functions);
	return (int)count;
}

static const void *const tools_module_table[8] = {
	TABLE_BYTES(tools_module_table),
	REFUSED_SLOTS(1, 6),
	[7] = SLOT(tools_module_functions),
};

/*
 * Tables whose callers do without the functions after an error, but crash without the table itself:
 * topology: [4] would tell cuBLASLt which part of the chip each pair of SMs belongs to; refused,
 * cuBLASLt uses a default. Frameworks at their start and compiled kernels ask for the other two
 * tables, whose meaning is not known.
 */
static const void *const topology_table[17] = {
	TABLE_BYTES(topology_table),
	REFUSED_SLOTS(1, 16),
};

static const void *const unnamed_69_table[34] = {
	TABLE_BYTES(unnamed_69_table),
	REFUSED_SLOTS(1, 33),
};

static const void *const unnamed_da_table[7] = {
	TABLE_BYTES(unnamed_da_table),
	REFUSED_SLOTS(1, 6),
};

/* The mark of this library: the service asks for this table to notice that it opened this library
 * instead of the real driver. No functions. */
static const void *const shim_table[1] = {
	TABLE_BYTES(shim_table),
};

struct export_table {
	uint8_t uuid[16];
	const void *const *table; /* NULL: callers ask for the table and do without */
};

static const struct export_table tables[] = {
	{{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
		runtime_table},
	{{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
		hooks_table},
	{{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
		thread_table},
	{{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
		storage_table},
	{{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
		checks_table},
	{{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
		integrity_table},
	{{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
		tools_context_table},
	{{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e},
		tools_module_table},
	{{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca},
		topology_table},
	{{0x69, 0xa2, 0x8e, 0x9f, 0x24, 0x49, 0x8b, 0x47, 0xb0, 0x30, 0xc5, 0xda, 0x33, 0x0e, 0xa4, 0xe9},
		unnamed_69_table},
	{{0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28},
		unnamed_da_table},
	{FRMPS_SHIM_UUID_BYTES, shim_table},
	/* The runtime's first question; the runtime ignores the answer. */
	{{0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9},
		NULL},
};

/* True the first time for each of a few UUIDs; false when the list is full. */
static bool first_mention(const uint8_t uuid[16])
{
	static _Atomic uint64_t mentioned[16];
	uint64_t mark;

	memcpy(&mark, uuid, sizeof(mark));
	mark |= 1;
	for (size_t i = 0; i < sizeof(mentioned) / sizeof(mentioned[0]); i++) {
		uint64_t free_mark = 0;

		if (atomic_compare_exchange_strong(&mentioned[i], &free_mark, mark))
			return true;
		if (free_mark == mark)
			return false;
	}
	return false;
}

/* The first table that CUPTI asks for. */
static const uint8_t profilers[16] = {
	0x2c, 0x8e, 0x0a, 0xd8, 0x07, 0x10, 0xab, 0x4e, 0x90, 0xdd, 0x54, 0x71, 0x9f, 0xe5, 0xf7, 0x4b};

static void mention_unknown(const uint8_t uuid[16])
{
	char text[2 * 16 + 1];

	if (!first_mention(uuid))
		return;
	if (!memcmp(uuid, profilers, sizeof(profilers))) {
		client_log(CLIENT_LOG_ERROR,
			"a profiler (CUPTI) finds nothing to attach to: it would see no kernels of a program "
			"that goes through the service; profile without frmps-run");
		return;
	}
	for (int i = 0; i < 16; i++) {
		text[2 * i] = "0123456789abcdef"[uuid[i] >> 4];
		text[2 * i + 1] = "0123456789abcdef"[uuid[i] & 15];
	}
	text[32] = '\0';
	client_log(CLIENT_LOG_ERROR, "export table %s is not supported", text);
}

CUresult cuGetExportTable(const void **ret_table, const CUuuid *id)
{
	uint8_t uuid[16];

	if (!ret_table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(uuid, id->bytes, sizeof(uuid));
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		if (memcmp(tables[i].uuid, uuid, sizeof(uuid)))
			continue;
		*ret_table = tables[i].table;
		return tables[i].table ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	*ret_table = NULL;
	mention_unknown(uuid);
	return CUDA_ERROR_INVALID_VALUE;
}
