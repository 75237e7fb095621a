// See fake_service.h.

#include "tests/unit/client/fake_service.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/graph/capture.h"
#include "client/link/control.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/event.h"
#include "client/state/managed.h"
#include "client/state/memory.h"
#include "client/state/process.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/state/stream.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"
#include "client/trace/trace.h"
#include "client/text/text.h"

struct fake_service fake = {.kernel_threads = 1024, .registers = 32};

static const char *const names[] = {"add", "plain", "odd"};
static uint64_t values[64];

struct control_answer *control_answer_new(void)
{
	return calloc(1, sizeof(struct control_answer));
}

struct control_answer *control_answer_free(struct control_answer *answer)
{
	free(answer);
	return NULL;
}

static uint32_t describe(const char *name)
{
	static const uint64_t add[] = {3, 0, 8, 8, 4, 16, 8}, plain[] = {0}, odd[] = {3, 0, 3, 3, 16, 19, 1};
	uint32_t n;

	if (strcmp(name, "add") == 0)
		memcpy(values, add, n = sizeof(add));
	else if (strcmp(name, "odd") == 0)
		memcpy(values, odd, n = sizeof(odd));
	else if (strcmp(name, "plain") == 0)
		memcpy(values, plain, n = sizeof(plain));
	else
		return 0;
	n /= 8;
	memset(values + n, 0, 21 * 8);
	values[n + CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = (uint64_t)fake.kernel_threads;
	values[n + CU_FUNC_ATTRIBUTE_NUM_REGS] = fake.registers;
	values[n + CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = FAKE_SHARED;
	values[n + CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = (uint64_t)INT64_C(-1);
	memcpy(&values[n + CU_FUNC_ATTRIBUTE_MAX], fake.only_block, sizeof(fake.only_block));
	values[n + CU_FUNC_ATTRIBUTE_MAX + 3] = fake.cluster_most;
	return n + (fake.nonsense ? 20 : 21);
}

/* Its number is that of the client's descriptor. */
CUresult control_make_file(int *ret_fd, uint64_t *ret_file)
{
	++fake.calls[WIRE_MAKE_FILE];
	*ret_fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	*ret_file = (uint64_t)*ret_fd;
	return *ret_fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult load(const struct wire_message *request, struct wire_reply *reply)
{
	fake.module = request->load_module.module;
	fake.kind = request->load_module.kind;
	fake.bytes = request->load_module.bytes;
	fake.options = request->load_module.options.count;
	fake.seals = fcntl((int)request->load_module.file, F_GET_SEALS);
	reply->text = fake.text ? fake.text : "";
	fake.block = request->load_module.variables;
	if (fake.forgets) {
		--fake.forgets;
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	values[0] = fake.variables;
	values[1] = fake.managed;
	reply->values.count = 2;
	if (fake.variables && fake.block == WIRE_VARIABLES_ASKED)
		return CUDA_ERROR_NOT_READY;
	values[0] = 0;
	values[1] = fake.text_uses;
	values[2] = 0;
	values[3] = (fake.block == FAKE_BLOCK || fake.block == FAKE_MANAGED) && !fake.keeps_variables;
	reply->values.count = 4;
	if (fake.load_code == CUDA_SUCCESS)
		++fake.loaded[fake.module];
	return fake.load_code;
}

static CUresult unload(const struct wire_message *request)
{
	if (fake.unload_code == CUDA_SUCCESS)
		--fake.loaded[request->symbol.module];
	return fake.unload_code;
}

static CUresult list(uint32_t from, struct wire_reply *reply)
{
	uint32_t page = fake.page ? fake.page : 3, count = 0;

	for (uint32_t i = from; i < 3 && count < page; ++i)
		reply->names_storage[count++] = names[i];
	reply->names.at = reply->names_storage;
	reply->names.count = count;
	values[0] = fake.listed ? fake.listed : 3;
	reply->values.count = 1;
	return CUDA_SUCCESS;
}

/* 2048 threads and 232448 bytes of shared memory per multiprocessor. */
static CUresult occupancy(const struct wire_occupancy *query, struct wire_reply *reply)
{
	uint64_t blocks = query->block_size ? 2048 / query->block_size : 7;

	if (query->shared_bytes > 0 && 232448 / query->shared_bytes < blocks)
		blocks = 232448 / query->shared_bytes;
	values[0] = query->attributes.count ? query->attributes.at[8] : blocks;
	values[1] = fake.sms;
	reply->values.count = 2;
	return CUDA_SUCCESS;
}

CUresult control_call(struct wire_message *request, struct control_answer *ret_answer)
{
	struct wire_reply *reply = &ret_answer->message.reply;

	++fake.calls[request->type];
	ret_answer->message.type = WIRE_REPLY;
	memset(reply, 0, sizeof(*reply));
	reply->values.at = values;
	switch ((int)request->type) {
	case WIRE_LOAD_MODULE:
		return load(request, reply);
	case WIRE_UNLOAD_MODULE:
		return unload(request);
	case WIRE_FIND_FUNCTION:
		reply->values.count = describe(request->symbol.name);
		return reply->values.count ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
	case WIRE_FIND_GLOBAL:
		values[0] = FAKE_GLOBAL;
		values[1] = 16;
		reply->values.count = 2;
		return strcmp(request->symbol.name, "counter") == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
	case WIRE_LIST_FUNCTIONS:
		return list(request->symbol.from, reply);
	case WIRE_SET_FUNCTION:
		fake.set = request->set_function;
		fake.set_drains = fake.drains;
		fake.set_ring_drains = fake.ring_drains;
		return fake.set.value > 232448 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case WIRE_QUERY_OCCUPANCY:
		return occupancy(&request->occupancy, reply);
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

static const struct client_device device;

const struct client_device *device_get(int ordinal)
{
	return ordinal == 0 ? &device : NULL;
}

int device_own(void)
{
	return 0;
}

CUresult device_check(int ordinal)
{
	return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

uint32_t device_sms(void)
{
	return 0;
}

CUresult device_attribute(const struct client_device *of, int attribute, int *ret_value)
{
	static const int known[][2] = {
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
		{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
		{CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
		{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, FAKE_PROCESSORS},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
		{CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
	};

	(void)of;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
		if (known[i][0] != attribute)
			continue;
		*ret_value = known[i][1];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUcontext context_current(void)
{
	return FAKE_CONTEXT;
}

CUfunc_cache context_cache_config(CUcontext context)
{
	(void)context;
	return CU_FUNC_CACHE_PREFER_NONE;
}

CUcontext context_owner(CUcontext context)
{
	return context;
}

CUcontext context_green(CUcontext context)
{
	(void)context;
	return NULL;
}

CUcontext context_shown(void)
{
	return FAKE_CONTEXT;
}

uint64_t context_part(CUcontext green)
{
	(void)green;
	return 0;
}

uint32_t context_sms(CUcontext green)
{
	(void)green;
	return 0;
}

uint64_t context_id(CUcontext context)
{
	return context == FAKE_CONTEXT;
}

int context_device(CUcontext context)
{
	return context == FAKE_CONTEXT ? 0 : -1;
}

CUresult context_limit(CUcontext context, CUlimit limit, size_t *ret_value)
{
	if (context != FAKE_CONTEXT || limit != CU_LIMIT_PRINTF_FIFO_SIZE || !fake.text_limit)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_value = fake.text_limit;
	return CUDA_SUCCESS;
}

CUresult text_open_small(void)
{
	fake.small_texts += fake.text_code == CUDA_SUCCESS;
	return fake.text_code;
}

bool text_is_open(void)
{
	return fake.texts > 0;
}

CUresult text_open(uint64_t bytes)
{
	if (fake.texts)
		return CUDA_SUCCESS;
	fake.text_bytes = bytes;
	fake.texts += fake.text_code == CUDA_SUCCESS;
	return fake.text_code;
}

void text_flush(struct session *session)
{
	(void)session;
}

void text_settle(struct session *session)
{
	(void)session;
}

CUresult memory_alloc_block(uint64_t bytes, void **ret_block)
{
	fake.block_bytes = bytes;
	*ret_block = &fake;
	return fake.block_code;
}

void memory_free_block(void *block)
{
	fake.block_bytes = block == &fake ? 0 : UINT64_MAX;
}

uint64_t memory_block_address(const void *block)
{
	return block == &fake ? FAKE_BLOCK : 0;
}

CUresult managed_alloc(CUcontext context, uint64_t bytes, unsigned int flags, CUdeviceptr *ret_address)
{
	(void)context;
	(void)flags;
	fake.managed_bytes = bytes;
	*ret_address = FAKE_MANAGED;
	return fake.block_code;
}

CUresult managed_free(CUdeviceptr address)
{
	fake.managed_bytes = address == FAKE_MANAGED ? 0 : UINT64_MAX;
	return CUDA_SUCCESS;
}

bool managed_holds(uint64_t address, uint64_t bytes)
{
	return address >= FAKE_MANAGED && bytes <= fake.managed_bytes &&
	       address - FAKE_MANAGED <= fake.managed_bytes - bytes;
}

CUresult process_enter_early(void)
{
	return process_enter();
}

CUresult process_enter(void)
{
	return fake.enter_code;
}

CUresult process_enter_context(void)
{
	return fake.enter_code ? fake.enter_code : fake.context_code;
}

CUresult process_enter_object(bool has_context, struct session *session)
{
	(void)has_context;
	(void)session;
	return process_enter_context();
}

bool wait_launches;

CUresult wait_launched(struct client_stream *stream)
{
	(void)stream;
	return CUDA_SUCCESS;
}

CUresult wait_all(void)
{
	++fake.drains;
	return CUDA_SUCCESS;
}

CUresult submit_drain(void)
{
	++fake.ring_drains;
	return CUDA_SUCCESS;
}

int ranges_add(uint64_t address, uint64_t bytes, enum range_kind kind, void *owner)
{
	if (kind != RANGE_GLOBAL)
		return RANGES_E_EXISTS;
	fake.range_address = address;
	fake.range_bytes = bytes;
	fake.range_owner = owner;
	return 0;
}

void ranges_remove_owner(void *owner)
{
	if (owner == fake.range_owner)
		fake.range_owner = NULL;
}

static struct client_stream stream;

CUresult stream_resolve(CUstream handle, bool per_thread, struct client_stream **ret_stream)
{
	if ((uintptr_t)handle > 2)
		return CUDA_ERROR_INVALID_HANDLE;
	fake.per_thread = per_thread;
	stream.session = session_self();
	*ret_stream = &stream;
	return CUDA_SUCCESS;
}

/* No stream captures. */
word32 capture_strict;

CUresult capture_check_unsafe(void)
{
	return CUDA_SUCCESS;
}

CUresult capture_fail(struct client_stream *of, CUresult code)
{
	(void)of;
	return code;
}

CUresult capture_launch(struct client_stream *of, const struct launch *launch)
{
	(void)of;
	(void)launch;
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult submit_begin(struct client_stream *of, enum frmps_op op, uint32_t bytes, struct submit *ret_submit)
{
	if (fake.submit_code != CUDA_SUCCESS)
		return fake.submit_code;
	memset(fake.body, 0xee, sizeof(fake.body));
	fake.head = (struct frmps_head){.op = (uint16_t)op};
	fake.body_bytes = bytes;
	*ret_submit = (struct submit){.stream = of, .head = &fake.head, .body = fake.body};
	return CUDA_SUCCESS;
}

CUresult submit_begin_timed(struct client_stream *of, enum frmps_op op, uint32_t bytes,
	struct submit_timing *timing, struct submit *ret_submit)
{
	(void)timing;
	return submit_begin(of, op, bytes, ret_submit);
}

void submit_commit(struct submit *submit)
{
	(void)submit;
	++fake.launches;
}

void submit_commit_timed(struct submit *submit, struct submit_timing *timing, bool early)
{
	(void)timing;
	(void)early;
	submit_commit(submit);
}

CUresult event_check_launch(CUevent event)
{
	(void)event;
	return fake.event_code;
}

CUresult event_record(CUevent event, struct client_stream *of)
{
	(void)event;
	(void)of;
	++fake.records;
	return CUDA_SUCCESS;
}

/* There is no trace. */
word32 trace_on;

struct trace_call trace_call_begin(const char *name)
{
	return (struct trace_call){name, 0};
}

void trace_call_end(const struct trace_call *call)
{
	(void)call;
}

struct submit_timing *trace_launch(const struct launch *launch, const struct client_stream *of)
{
	(void)launch;
	(void)of;
	return NULL;
}

CUresult trace_submitted(struct submit_timing *timing, CUresult result)
{
	(void)timing;
	return result;
}
