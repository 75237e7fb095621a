// Streams, events, and the small words that streams write. Nothing here waits for the device.

#include "server/backend/cuda/cuda.h"

CUresult cuda_stream_create(int32_t priority, uint64_t sms, struct backend_stream **ret_stream)
{
	CUstream stream;
	CUresult code = sms ? cuda_sms_stream_create(sms, priority, &stream)
			    : driver.stream_create(&stream, CU_STREAM_NON_BLOCKING, priority);

	if (!code)
		*ret_stream = (struct backend_stream *)(void *)stream;
	return code;
}

CUresult cuda_stream_destroy(struct backend_stream *stream)
{
	return driver.stream_destroy(cuda_stream(stream));
}

CUresult cuda_stream_query(struct backend_stream *stream)
{
	return driver.stream_query(cuda_stream(stream));
}

CUresult cuda_event_create(bool timing, struct backend_event **ret_event)
{
	CUevent event;
	CUresult code = driver.event_create(&event, timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);

	if (!code)
		*ret_event = (struct backend_event *)(void *)event;
	if (timing)
		cuda_clock_want();
	return code;
}

CUresult cuda_event_destroy(struct backend_event *event)
{
	return driver.event_destroy(cuda_event(event));
}

CUresult cuda_event_record(struct backend_event *event, struct backend_stream *stream)
{
	CUresult code = driver.event_record(cuda_event(event), cuda_stream(stream));

	cuda_clock_note();
	return code;
}

CUresult cuda_stream_wait(struct backend_stream *stream, struct backend_event *event)
{
	return driver.stream_wait(cuda_stream(stream), cuda_event(event), CU_EVENT_WAIT_DEFAULT);
}

CUresult cuda_write_value(struct backend_stream *stream, const struct frmps_write_value *write)
{
	/* Some devices (H200) refuse to leave the barrier out; with it the write promises more,
	 * never less.
	 */
	const uint32_t flags = CU_STREAM_WRITE_VALUE_DEFAULT;

	if (write->flags & ~(uint32_t)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
		return CUDA_ERROR_INVALID_VALUE;
	if (write->bytes == 8)
		return driver.write64(cuda_stream(stream), write->address, write->value, flags);
	if (write->bytes == 4)
		return driver.write32(cuda_stream(stream), write->address, (uint32_t)write->value, flags);
	return CUDA_ERROR_INVALID_VALUE;
}

/*
 * The default flags order the write behind everything the stream did before, in memory too. A
 * 32-bit write costs half of a 64-bit one (H200, driver 580: 1.0 against 1.9 us of issue), and only
 * one mark in 2^32 changes the upper half. Marks under way are not beyond `value` and not before
 * what the word holds, so where these two agree in the upper half, so do all marks between them.
 */
CUresult cuda_mark(struct backend_stream *stream, void *word, uint64_t value)
{
	uint64_t now = __atomic_load_n((uint64_t *)word, __ATOMIC_RELAXED);
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)word;

	if (now >> 32 == value >> 32)
		return driver.write32(
			cuda_stream(stream), address, (uint32_t)value, CU_STREAM_WRITE_VALUE_DEFAULT);
	return driver.write64(cuda_stream(stream), address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}
