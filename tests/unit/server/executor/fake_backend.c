// See fake_backend.h. Handles are small heap objects, so that a sanitizer sees one that is used
// after its end or lost.

#include "tests/unit/server/executor/fake_backend.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "server/clock.h"
#include "shm/order.h"
#include "shm/text.h"

struct fake fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
}

static CUresult note(struct fake_call call)
{
	CUresult code;

	pthread_mutex_lock(&lock);
	code = fake.fails[call.kind];
	fake.failed[call.kind] += code != CUDA_SUCCESS;
	if (!code && fake.count < FAKE_LOG) {
		call.arrived = call.kind == FAKE_MARK && fake.immediate;
		fake.log[fake.count++] = call;
		if (call.arrived)
			word_release((word64 *)call.word, call.value);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

void fake_let_fail(enum fake_kind kind, CUresult code)
{
	pthread_mutex_lock(&lock);
	fake.fails[kind] = code;
	pthread_mutex_unlock(&lock);
}

unsigned fake_count_failed(enum fake_kind kind)
{
	unsigned count;

	pthread_mutex_lock(&lock);
	count = fake.failed[kind];
	pthread_mutex_unlock(&lock);
	return count;
}

int fake_position(enum fake_kind kind, unsigned n)
{
	int found = -1;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; found < 0 && i < fake.count; i++)
		if (fake.log[i].kind == kind && n-- == 0)
			found = (int)i;
	pthread_mutex_unlock(&lock);
	return found;
}

const struct fake_call *fake_call(enum fake_kind kind, unsigned n)
{
	int position = fake_position(kind, n);

	return position < 0 ? NULL : &fake.log[position];
}

unsigned fake_count(enum fake_kind kind)
{
	unsigned count = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < fake.count; i++)
		count += fake.log[i].kind == kind;
	pthread_mutex_unlock(&lock);
	return count;
}

bool fake_arrive_one(void)
{
	bool any = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; !any && i < fake.count; i++) {
		struct fake_call *call = &fake.log[i];

		if (call->kind != FAKE_MARK || call->arrived)
			continue;
		call->arrived = any = true;
		word_release((word64 *)call->word, call->value);
	}
	pthread_mutex_unlock(&lock);
	return any;
}

void fake_arrive(void)
{
	while (fake_arrive_one())
		;
}

/* ---- operations ---- */

static CUresult nothing(void)
{
	return CUDA_SUCCESS;
}

static void close_all(void)
{
}

static CUresult open_executor(int device, struct backend_device *ret_device)
{
	*ret_device = (struct backend_device){
		.name = "fake", .priority_least = 0, .priority_greatest = -5, .sm_granule = 1, .sm_units = 4};
	return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult window_reserve(uint64_t address, uint64_t bytes)
{
	(void)address;
	(void)bytes;
	return CUDA_SUCCESS;
}

static void take_time(void)
{
	uint64_t begin = clock_now(), now = begin;

	while (now < begin + fake.undo_ns)
		now = clock_now();
	fake.undoing_ns += now - begin;
}

static CUresult chunk_map(uint64_t address, uint64_t bytes, int fd)
{
	(void)bytes;
	(void)fd;
	return note((struct fake_call){.kind = FAKE_CHUNK_MAP, .object = (void *)(uintptr_t)address});
}

static CUresult chunk_unmap(uint64_t address, uint64_t bytes)
{
	(void)bytes;
	take_time();
	return note((struct fake_call){.kind = FAKE_CHUNK_UNMAP, .object = (void *)(uintptr_t)address});
}

static CUresult sink_open(int fd, uint64_t bytes, struct backend_sink **ret_sink)
{
	uint64_t *sink = malloc(sizeof(*sink));

	(void)fd;
	*sink = bytes;
	*ret_sink = (struct backend_sink *)sink;
	return CUDA_SUCCESS;
}

static CUresult sink_close(struct backend_sink *sink)
{
	free(sink);
	return CUDA_SUCCESS;
}

static CUresult sink_map(struct backend_sink *sink, uint64_t address)
{
	(void)sink;
	return note((struct fake_call){.kind = FAKE_SINK_MAP, .object = (void *)(uintptr_t)address});
}

static CUresult sink_unmap(struct backend_sink *sink, uint64_t address)
{
	(void)sink;
	take_time();
	return note((struct fake_call){.kind = FAKE_SINK_UNMAP, .object = (void *)(uintptr_t)address});
}

static CUresult check(
	struct backend_stream *stream, uint64_t address, uint64_t bytes, uint32_t pattern, uint32_t *word)
{
	(void)pattern;
	if (!bytes)
		return CUDA_SUCCESS;
	return note((struct fake_call){
		.kind = FAKE_CHECK, .stream = stream, .object = (void *)(uintptr_t)address, .word = word});
}

static CUresult host_register(void *address, uint64_t bytes)
{
	(void)bytes;
	return note((struct fake_call){.kind = FAKE_REGISTER, .object = address});
}

static CUresult host_unregister(void *address)
{
	return note((struct fake_call){.kind = FAKE_UNREGISTER, .object = address});
}

static CUresult memory_info(uint64_t *ret_free, uint64_t *ret_total)
{
	*ret_free = 1;
	*ret_total = 2;
	return CUDA_SUCCESS;
}

static CUresult make_of(enum fake_kind kind, uint64_t value, void **ret_object)
{
	void *object = malloc(1);
	CUresult code = note((struct fake_call){.kind = kind, .object = object, .value = value});

	if (code)
		free(object);
	else
		*ret_object = object;
	return code;
}

static CUresult make(enum fake_kind kind, void **ret_object)
{
	return make_of(kind, 0, ret_object);
}

static CUresult end(enum fake_kind kind, void *object)
{
	CUresult code = note((struct fake_call){.kind = kind, .object = object});

	take_time();
	free(object);
	return code;
}

static CUresult fence(void)
{
	note((struct fake_call){.kind = FAKE_FENCE});
	return CUDA_SUCCESS;
}

/* Of a fake kernel the mark behind it is all that there is. */
static CUresult kernels_end(const struct backend_ending *ending, char *ret_kernel)
{
	struct backend_module **modules;
	struct fake_call call = {.kind = FAKE_END};
	uint32_t count;
	CUresult code;

	*ret_kernel = '\0';
	if (!fake.can_end)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!ending)
		return CUDA_SUCCESS;
	if (ending->may_end)
		note((struct fake_call){.kind = FAKE_LOOK});
	while (fake.end_stuck == 2)
		sched_yield();
	/* All kernels stand still. */
	modules = ending->list(ending->context, &count);
	call.value = count;
	call.object = count ? modules[0] : NULL;
	free(modules);
	if (ending->may_end && !ending->may_end(ending->context, fake.waits))
		return CUDA_SUCCESS;
	code = note(call);
	while (fake.end_stuck)
		sched_yield();
	strcpy(ret_kernel, "kernel");
	if (!code && fake.ends)
		fake_arrive_one();
	return code;
}

static void thread_show(pthread_t thread)
{
	(void)thread;
	note((struct fake_call){.kind = FAKE_THREAD_SHOW});
}

static CUresult module_load(struct backend_load *load, struct backend_module **ret_module)
{
	const char *image = load->image;

	if (load->log_bytes)
		strcpy(load->log, "fine");
	if (load->text)
		load->text->uses = load->bytes > 1 && image[1] == 'P' ? SHM_TEXT_PRINTS : 0;
	if (*image == 'S')
		return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
	if (*image != 'M')
		return CUDA_ERROR_INVALID_IMAGE;
	if (load->code == WIRE_CODE_ASKED)
		load->code = load->window + FAKE_CODE;
	return make(FAKE_MODULE_LOAD, (void **)ret_module);
}

static CUresult module_unload(struct backend_module *module)
{
	return end(FAKE_MODULE_UNLOAD, module);
}

static bool module_waits(const struct backend_module *module)
{
	(void)module;
	return !fake.is_quick;
}

static const struct statics *module_statics(const struct backend_module *module)
{
	(void)module;
	return &fake.statics;
}

static CUresult function_find(struct backend_module *module, const char *name, bool gap,
	struct backend_function **ret_function, struct backend_function_info *ret_info)
{
	if (*name != 'k')
		return CUDA_ERROR_NOT_FOUND;
	if (strchr(name, '+')) {
		if (!gap)
			return CUDA_ERROR_NOT_READY;
		note((struct fake_call){.kind = FAKE_SETTLE, .object = module});
	}
	*ret_function = (struct backend_function *)module;
	memset(ret_info, 0, sizeof(*ret_info));
	ret_info->param_count = 1;
	ret_info->params[0].size = 8;
	ret_info->argument_bytes = 8;
	ret_info->attributes[0] = 1024;
	ret_info->shape =
		(struct backend_shape){.block = {32, 16, 8}, .cluster_most = 4, .counts_clusters = true};
	return CUDA_SUCCESS;
}

static CUresult global_find(
	struct backend_module *module, const char *name, bool gap, struct backend_global *ret_global)
{
	(void)module;
	if (strchr(name, '+') && !gap)
		return CUDA_ERROR_NOT_READY;
	*ret_global = (struct backend_global){
		.address = UINT64_C(0x7000000000), .bytes = fake.global_bytes ? fake.global_bytes : 256};
	return CUDA_SUCCESS;
}

static CUresult function_list(
	struct backend_module *module, uint32_t from, const char **ret_names, uint32_t *count)
{
	static char name[WIRE_PACKET_MAX + 1];

	(void)module;
	memset(name, 'k', sizeof(name) - 1);
	name[fake.endless_name ? WIRE_PACKET_MAX : 200] = '\0';
	if (!fake.kernels && !from)
		ret_names[0] = "kernel";
	for (uint32_t i = from; i < fake.kernels && i - from < *count; i++)
		ret_names[i - from] = name;
	*count = fake.kernels ? fake.kernels : 1;
	return CUDA_SUCCESS;
}

static CUresult function_set(struct backend_function *function, uint32_t attribute, int64_t value)
{
	(void)function;
	(void)attribute;
	return value < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult occupancy(struct backend_function *function, const struct wire_occupancy *query, uint64_t sms,
	uint64_t *ret_value)
{
	(void)function;
	(void)query;
	*ret_value = 16 + sms;
	return CUDA_SUCCESS;
}

static CUresult limit_set(CUlimit limit, uint64_t value, uint64_t *ret_value)
{
	(void)limit;
	*ret_value = value + 1;
	return value == 13 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult sms_make(uint64_t sms)
{
	return note((struct fake_call){.kind = FAKE_SMS_MAKE, .value = sms});
}

static CUresult stream_create(int32_t priority, uint64_t sms, struct backend_stream **ret_stream)
{
	pthread_mutex_lock(&lock);
	fake.priority = priority;
	pthread_mutex_unlock(&lock);
	return make_of(FAKE_STREAM_CREATE, sms, (void **)ret_stream);
}

static CUresult stream_destroy(struct backend_stream *stream)
{
	return end(FAKE_STREAM_DESTROY, stream);
}

static CUresult stream_query(struct backend_stream *stream)
{
	(void)stream;
	__atomic_add_fetch(&fake.queries, 1, __ATOMIC_RELAXED);
	if (fake.query)
		return fake.query;
	return fake.copies_pend ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_create(bool timing, struct backend_event **ret_event)
{
	(void)timing;
	return make(FAKE_EVENT_CREATE, (void **)ret_event);
}

static CUresult event_destroy(struct backend_event *event)
{
	return end(FAKE_EVENT_DESTROY, event);
}

static CUresult event_record(struct backend_event *event, struct backend_stream *stream)
{
	return note((struct fake_call){.kind = FAKE_RECORD, .stream = stream, .object = event});
}

static CUresult event_time(struct backend_event *event, struct backend_time *ret_time)
{
	(void)event;
	*ret_time = fake.time;
	return fake.time_code;
}

static CUresult stream_wait(struct backend_stream *stream, struct backend_event *event)
{
	return note((struct fake_call){.kind = FAKE_WAIT, .stream = stream, .object = event});
}

static CUresult launch(struct backend_stream *stream, const struct backend_launch *what)
{
	CUresult code = note((struct fake_call){.kind = FAKE_LAUNCH,
		.stream = stream,
		.object = what->function,
		.value = what->argument_bytes ? what->arguments[0] : 0});

	while (fake.stuck)
		sched_yield();
	return code;
}

static CUresult copy(struct backend_stream *stream, const struct backend_copy *what)
{
	CUresult code = note((struct fake_call){.kind = FAKE_COPY,
		.stream = stream,
		.object = (void *)(uintptr_t)what->dst,
		.value = what->src});

	/* The only copy whose bytes matter here: a look at a device word. */
	if (!code && what->dst_is_host && what->width <= 8)
		memcpy((void *)(uintptr_t)what->dst, &fake.device_word, what->width);
	return code;
}

static CUresult set(struct backend_stream *stream, const struct frmps_set *what)
{
	CUresult code = note((struct fake_call){
		.kind = FAKE_SET, .stream = stream, .object = (void *)(uintptr_t)what->dst});

	while (fake.stuck)
		sched_yield();
	return code;
}

static CUresult write_value(struct backend_stream *stream, const struct frmps_write_value *what)
{
	return note((struct fake_call){.kind = FAKE_WRITE,
		.stream = stream,
		.object = (void *)(uintptr_t)what->address,
		.value = what->value});
}

static CUresult graph_make(const struct backend_node *nodes, uint32_t count, uint32_t flags, uint64_t sms,
	struct backend_graph **ret_graph)
{
	CUresult code = note((struct fake_call){.kind = FAKE_GRAPH_MAKE,
		.object = (void *)(uintptr_t)nodes,
		.seq = flags,
		.value = count,
		.stream = (void *)(uintptr_t)sms});

	if (!code)
		*ret_graph = (struct backend_graph *)(void *)(uintptr_t)nodes;
	return code;
}

static CUresult graph_free(struct backend_graph *graph)
{
	take_time();
	return note((struct fake_call){.kind = FAKE_GRAPH_FREE, .object = graph});
}

static CUresult graph_change(struct backend_graph *graph, uint32_t index, const struct backend_node *node)
{
	unsigned n = fake_count(FAKE_GRAPH_CHANGE);

	if (n < 64 && node->op == FRMPS_OP_SET)
		fake.set_value[n] = node->set->value;
	return note((struct fake_call){.kind = FAKE_GRAPH_CHANGE, .object = graph, .value = index});
}

static CUresult graph_launch(struct backend_stream *stream, struct backend_graph *graph)
{
	return note((struct fake_call){.kind = FAKE_GRAPH_LAUNCH, .stream = stream, .object = graph});
}

static CUresult mark(struct backend_stream *stream, void *word, uint64_t value)
{
	void (*marked)(void) = fake.marked;

	if (marked)
		marked();
	return note((struct fake_call){.kind = FAKE_MARK, .stream = stream, .word = word, .value = value});
}

const struct backend_ops fake_ops = {
	.name = "fake",
	.open_executor = open_executor,
	.close = close_all,
	.thread_enter = nothing,
	.fence = fence,
	.thread_show = thread_show,
	.kernels_end = kernels_end,
	.window_reserve = window_reserve,
	.window_release = window_reserve,
	.chunk_map = chunk_map,
	.chunk_unmap = chunk_unmap,
	.sink_open = sink_open,
	.sink_close = sink_close,
	.sink_map = sink_map,
	.sink_unmap = sink_unmap,
	.sink_mappings_max = UINT32_MAX,
	.check = check,
	.host_register = host_register,
	.host_unregister = host_unregister,
	.memory_info = memory_info,
	.module_load = module_load,
	.module_unload = module_unload,
	.module_waits = module_waits,
	.module_statics = module_statics,
	.function_find = function_find,
	.global_find = global_find,
	.function_list = function_list,
	.function_set = function_set,
	.occupancy = occupancy,
	.sms_make = sms_make,
	.stream_create = stream_create,
	.stream_destroy = stream_destroy,
	.stream_query = stream_query,
	.event_create = event_create,
	.event_destroy = event_destroy,
	.event_record = event_record,
	.event_time = event_time,
	.limit_set = limit_set,
	.stream_wait = stream_wait,
	.launch = launch,
	.copy = copy,
	.set = set,
	.write_value = write_value,
	.graph_make = graph_make,
	.graph_free = graph_free,
	.graph_change = graph_change,
	.graph_launch = graph_launch,
	.mark = mark,
};
