// Streams, events, and the small words that streams write. Nothing here waits for the device.
//
// The driver gives each new stream another queue of the hardware, in turn. Before its firmware
// reports that a kernel has faulted, it goes through the device's channels in the order of their
// creation, up to the kernel's: 0.5 ms for each, and a queue has two that count (H200, driver
// 580.159.04). So a program's fault in the last of 16 queues is reported 15 ms later, for all
// others, than a fault in the first.
//
// Hence streams are made with the context, before any other stream, in the order of the queues.
// Streams of the usual kind are reused, and the first free stream is taken. So the work of a few
// programs, however many have run before, is in the first queues. And the first command in a
// program's stream need not wait for the driver to make one.
//
//   missing ──create──► taken ──destroy, empty──► free ──create──► taken
//      ▲                  │
//      └──────────────────┘ destroy, not empty: destroyed by the driver

#include "server/backend/cuda/cuda.h"

#include <assert.h>
#include <pthread.h>

#include "server/role.h"

#define USUAL_PRIORITY 0 /* of requests without a priority; the lowest */
#define POOL_MAX       64u

static_assert(POOL_MAX % HERITAGE_QUEUES == 0, "each queue has as many");

static struct {
	pthread_mutex_t lock; /* of the following */
	struct pooled {
		CUstream stream; /* NULL: missing */
		bool taken;
	} at[POOL_MAX];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUresult make(CUstream *ret_stream)
{
	return driver.stream_create(ret_stream, CU_STREAM_NON_BLOCKING, USUAL_PRIORITY);
}

/* A stream that cannot be made is missing. */
void cuda_stream_open(void)
{
	for (uint32_t i = 0; i < POOL_MAX; i++)
		if (make(&pool.at[i].stream))
			pool.at[i].stream = NULL;
}

void cuda_stream_close(void)
{
	for (uint32_t i = 0; i < POOL_MAX; i++)
		pool.at[i] = (struct pooled){0};
}

/* Return: a place that nobody has taken; NULL: there is none */
static struct pooled *find_free(void)
{
	for (uint32_t i = 0; i < POOL_MAX; i++)
		if (!pool.at[i].taken)
			return &pool.at[i];
	return NULL;
}

static CUresult take(CUstream *ret_stream)
{
	struct pooled *place;
	CUresult code = CUDA_SUCCESS;

	pthread_mutex_lock(&pool.lock);
	place = find_free();
	if (!place || !place->stream)
		code = make(ret_stream);
	else
		*ret_stream = place->stream;
	if (place && !code)
		*place = (struct pooled){*ret_stream, true};
	pthread_mutex_unlock(&pool.lock);
	return code;
}

static struct pooled *find_taken(CUstream stream)
{
	for (uint32_t i = 0; i < POOL_MAX; i++)
		if (pool.at[i].taken && pool.at[i].stream == stream)
			return &pool.at[i];
	return NULL;
}

/* Return: true if the stream stays, for reuse. A stream with work would make its next user wait for
 * that work. */
static bool keep(CUstream stream)
{
	struct pooled *place;
	bool stays;

	pthread_mutex_lock(&pool.lock);
	place = find_taken(stream);
	stays = place && driver.stream_query(stream) == CUDA_SUCCESS;
	if (place)
		*place = (struct pooled){stays ? stream : NULL, false};
	pthread_mutex_unlock(&pool.lock);
	return stays;
}

CUresult cuda_stream_create(int32_t priority, uint64_t sms, struct backend_stream **ret_stream)
{
	CUstream stream;
	CUresult code;

	if (sms)
		code = cuda_sms_stream_create(sms, priority, &stream);
	else if (priority == USUAL_PRIORITY)
		code = take(&stream);
	else
		code = driver.stream_create(&stream, CU_STREAM_NON_BLOCKING, priority);
	if (!code)
		*ret_stream = (struct backend_stream *)(void *)stream;
	return code;
}

CUresult cuda_stream_destroy(struct backend_stream *stream)
{
	return keep(cuda_stream(stream)) ? CUDA_SUCCESS : driver.stream_destroy(cuda_stream(stream));
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
	/* Some devices (H200) refuse to omit the barrier; with it the write promises more, never
	 * less. */
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
 * The default flags order the write behind all earlier work of the stream, in memory too. A 32-bit
 * write costs half of a 64-bit write (H200, driver 580: 1.0 against 1.9 us of issue), and only one
 * completion word in 2^32 changes the upper half. Writes under way are not beyond `value` and not
 * before the word's present value, so where these two agree in the upper half, so do all writes
 * between them.
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
