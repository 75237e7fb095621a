// Streams and events, and the simple commands that are queued in a stream. Runs on the executor's
// threads; pool.c carries the commands out.

#include <stdlib.h>

#include "tests/host/host.h"

/* Priorities order nothing here: every stream that can run does. */
CUresult host_stream_create(int32_t priority, uint64_t sms, struct backend_stream **ret_stream)
{
	struct backend_stream *stream;

	(void)priority;
	if (!host_sms_mask(sms))
		return CUDA_ERROR_INVALID_VALUE;
	stream = host_stream_new(host_sms_mask(sms));
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

CUresult host_stream_destroy(struct backend_stream *stream)
{
	host_stream_free(stream);
	return CUDA_SUCCESS;
}

CUresult host_stream_query(struct backend_stream *stream)
{
	CUresult code = host_faults_code();

	if (code)
		return code;
	return host_stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult host_event_create(bool timing, struct backend_event **ret_event)
{
	struct backend_event *event = calloc(1, sizeof(*event));

	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->timing = timing;
	*ret_event = event;
	return CUDA_SUCCESS;
}

CUresult host_event_destroy(struct backend_event *event)
{
	host_event_drop_latest(event);
	free(event);
	return CUDA_SUCCESS;
}

CUresult host_event_record(struct backend_event *event, struct backend_stream *stream)
{
	struct host_work *work = host_work_new(HOST_RECORD, 0);

	return work ? host_stream_push_record(stream, event, work) : host_work_error();
}

CUresult host_stream_wait(struct backend_stream *stream, struct backend_event *event)
{
	struct host_work *work = host_work_new(HOST_WAIT, 0);

	return work ? host_stream_push_wait(stream, event, work) : host_work_error();
}

CUresult host_event_read(struct backend_event *event, struct backend_time *ret_time)
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

CUresult host_write(struct backend_stream *stream, const struct frmps_write_value *write)
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

CUresult host_check_memory(
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

CUresult host_mark(struct backend_stream *stream, void *word, uint64_t value)
{
	return host_write(
		stream, &(struct frmps_write_value){.address = (uintptr_t)word, .value = value, .bytes = 8});
}
