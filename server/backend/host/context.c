// Opening and closing the pretended device for a role, the operations that queue simple commands, and the
// table of the backend.

#include <stdio.h>
#include <stdlib.h>

#include "server/backend/host/host.h"

static bool pool_open;

static CUresult probe(struct backend_probe *ret_probe)
{
	*ret_probe = (struct backend_probe){.device_count = 1};
	snprintf(ret_probe->text, sizeof(ret_probe->text),
		"The host backend runs kernels as C functions in a process of this machine.");
	return CUDA_SUCCESS;
}

static CUresult open_keeper(int device)
{
	return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult open_executor(int device, struct backend_device *ret_device)
{
	CUresult code;

	if (device != 0)
		return CUDA_ERROR_INVALID_DEVICE;
	code = host_faults_init();
	if (!code)
		code = host_pool_init();
	if (code)
		return code;
	pool_open = true;
	host_device_read(ret_device);
	return CUDA_SUCCESS;
}

static void close_backend(void)
{
	if (pool_open)
		host_pool_deinit();
	pool_open = false;
	host_memory_deinit();
}

static CUresult thread_enter(void)
{
	return CUDA_SUCCESS;
}

/* Signals are faults here. */
static void thread_show(pthread_t thread)
{
	(void)thread;
}

/* Priorities order nothing here: every stream that can run does. */
static CUresult stream_create(int32_t priority, struct backend_stream **ret_stream)
{
	struct backend_stream *stream = host_stream_new();

	(void)priority;
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

static CUresult stream_destroy(struct backend_stream *stream)
{
	host_stream_free(stream);
	return CUDA_SUCCESS;
}

static CUresult stream_query(struct backend_stream *stream)
{
	CUresult code = host_faults_code();

	if (code)
		return code;
	return host_stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_create(bool timing, struct backend_event **ret_event)
{
	struct backend_event *event = calloc(1, sizeof(*event));

	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->timing = timing;
	*ret_event = event;
	return CUDA_SUCCESS;
}

static CUresult event_destroy(struct backend_event *event)
{
	host_event_drop_latest(event);
	free(event);
	return CUDA_SUCCESS;
}

static CUresult event_record(struct backend_event *event, struct backend_stream *stream)
{
	struct host_work *work = host_work_new(HOST_RECORD, 0);

	return work ? host_stream_push_record(stream, event, work) : host_work_error();
}

static CUresult stream_wait(struct backend_stream *stream, struct backend_event *event)
{
	struct host_work *work = host_work_new(HOST_WAIT, 0);

	return work ? host_stream_push_wait(stream, event, work) : host_work_error();
}

static CUresult event_time(struct backend_event *event, struct backend_time *ret_time)
{
	CUresult code = event->timing ? host_event_time(event, &ret_time->local) : CUDA_ERROR_INVALID_HANDLE;

	if (!code)
		ret_time->device = ret_time->local;
	return code;
}

CUresult host_copy(struct backend_stream *stream, const struct backend_copy *copy)
{
	struct host_work *work = host_work_new(HOST_COPY, 0);

	if (!work)
		return host_work_error();
	work->copy = *copy;
	host_array_resolve(&work->copy);
	host_stream_push(stream, work);
	return CUDA_SUCCESS;
}

CUresult host_set(struct backend_stream *stream, const struct frmps_set *set)
{
	uint32_t element = set->element_bytes;
	struct host_work *work;

	if ((element != 1 && element != 2 && element != 4) || set->dst % element ||
		(set->height > 1 && set->pitch % element))
		return CUDA_ERROR_INVALID_VALUE;
	work = host_work_new(HOST_SET, 0);
	if (!work)
		return host_work_error();
	work->set = *set;
	host_stream_push(stream, work);
	return CUDA_SUCCESS;
}

static CUresult queue_write(struct backend_stream *stream, const struct frmps_write_value *write)
{
	struct host_work *work;

	if ((write->bytes != 4 && write->bytes != 8) || write->address % write->bytes ||
		write->flags & ~(uint32_t)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
		return CUDA_ERROR_INVALID_VALUE;
	work = host_work_new(HOST_WRITE, 0);
	if (!work)
		return host_work_error();
	work->write = *write;
	host_stream_push(stream, work);
	return CUDA_SUCCESS;
}

static CUresult queue_check(
	struct backend_stream *stream, uint64_t address, uint64_t bytes, uint32_t pattern, uint32_t *word)
{
	struct host_work *work;

	if (!bytes)
		return CUDA_SUCCESS;
	work = host_work_new(HOST_CHECK, 0);
	if (!work)
		return host_work_error();
	work->check =
		(struct host_check){.address = address, .bytes = bytes, .pattern = pattern, .word = word};
	host_stream_push(stream, work);
	return CUDA_SUCCESS;
}

static CUresult mark(struct backend_stream *stream, void *word, uint64_t value)
{
	return queue_write(
		stream, &(struct frmps_write_value){.address = (uintptr_t)word, .value = value, .bytes = 8});
}

const struct backend_ops backend_host = {
	.name = "host",
	.probe = probe,
	.open_keeper = open_keeper,
	.open_executor = open_executor,
	.close = close_backend,
	.thread_enter = thread_enter,
	.fence = host_pool_fence,
	.thread_show = thread_show,
	.kernels_end = host_pool_end,
	.chunk_create = host_chunk_create,
	.chunk_release = host_chunk_release,
	.window_reserve = host_window_reserve,
	.window_release = host_window_release,
	.chunk_map = host_chunk_map,
	.chunk_unmap = host_chunk_unmap,
	.sink_open = host_sink_open,
	.sink_close = host_sink_close,
	.sink_map = host_sink_map,
	.sink_unmap = host_sink_unmap,
	.sink_slots_max = HOST_SINK_SLOTS_MAX,
	.host_register = host_host_register,
	.host_unregister = host_host_unregister,
	.limit_set = host_limit_set,
	.memory_info = host_memory_info,
	.tensor_map = host_tensor_map,
	.link_create = host_link_create,
	.link_add = host_link_add,
	.link_complete = host_link_complete,
	.link_logs = host_link_logs,
	.link_destroy = host_link_destroy,
	.module_is_source = host_module_is_source,
	.module_compile = host_module_compile,
	.module_load = host_module_load,
	.module_unload = host_module_unload,
	.module_statics = host_module_statics,
	.function_find = host_function_find,
	.global_find = host_global_find,
	.function_list = host_function_list,
	.function_set = host_function_set,
	.occupancy = host_occupancy,
	.array_make = host_array_make,
	.array_back = host_array_back,
	.array_free = host_array_free,
	.object_make = host_object_make,
	.object_free = host_object_free,
	.object_settle = host_object_settle,
	.stream_create = stream_create,
	.stream_destroy = stream_destroy,
	.stream_query = stream_query,
	.event_create = event_create,
	.event_destroy = event_destroy,
	.event_record = event_record,
	.event_time = event_time,
	.stream_wait = stream_wait,
	.launch = host_launch,
	.copy = host_copy,
	.set = host_set,
	.write_value = queue_write,
	.check = queue_check,
	.graph_make = host_graph_make,
	.graph_free = host_graph_free,
	.graph_launch = host_graph_launch,
	.mark = mark,
};
