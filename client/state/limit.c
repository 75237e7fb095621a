// See limit.h.

#include "client/state/limit.h"

#include <pthread.h>
#include <stdbool.h>

#include "client/link/control.h"
#include "client/state/context_table.h"
#include "client/state/session.h"
#include "client/submit/wait.h"
#include "client/text/text.h"
#include "shm/text.h"

/* Less than the local memory that a thread can have on any device. */
#define STACK_BYTES_MAX ((512u << 10) - 1)
#define STACK_ALIGN	16u
/* Measured (driver 580, H200). */
#define HEAP_BYTES_MIN (4u << 20)
#define L2_FETCH_MAX   128u

void limit_start(void)
{
	pthread_mutex_init(&session_self()->limits.lock, NULL);
}

static bool is_needed(CUlimit limit)
{
	return limit == CU_LIMIT_STACK_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE ||
	       limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT;
}

static CUresult ask(CUlimit limit, size_t *value)
{
	struct wire_message request = {.type = WIRE_SET_LIMIT, .limit = {limit, *value}};
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS && answer->message.reply.values.count != 1)
		r = CUDA_ERROR_UNKNOWN;
	if (r == CUDA_SUCCESS)
		*value = answer->message.reply.values.at[0];
	control_answer_free(answer);
	return r;
}

/* Makes the service set a limit above the program's current limit. Waits for the program's own work
 * then. Limits that are hints are ignored.
 * @there: the limit of every program
 * @value: the wish; if the service was asked, the limit in force */
static CUresult raise_limit(CUlimit limit, uint64_t there, size_t *value)
{
	struct limits *limits = &session_self()->limits;
	CUresult r = CUDA_SUCCESS;

	if (!is_needed(limit) || *value <= there)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&limits->lock);
	if (*value > limits->in_force[limit]) {
		r = wait_all_quietly();
		if (r == CUDA_SUCCESS)
			r = ask(limit, value);
		if (r == CUDA_SUCCESS)
			limits->in_force[limit] = *value;
	}
	pthread_mutex_unlock(&limits->lock);
	return r;
}

/* Rounds like the driver, within the bounds of the ring. Fails once a kernel has printed. */
static CUresult set_text_limit(size_t *value)
{
	CUresult r = CUDA_SUCCESS;

	if (*value < SHM_TEXT_BYTES_MIN)
		*value = SHM_TEXT_BYTES_MIN;
	*value = *value < SHM_TEXT_BYTES_MAX ? (*value + 255) & ~(size_t)255 : SHM_TEXT_BYTES_MAX;
	if (text_is_used())
		return CUDA_ERROR_INVALID_VALUE;
	if (text_is_open())
		r = wait_all();
	return r == CUDA_SUCCESS && text_is_open() ? text_resize(*value) : r;
}

CUresult limit_set(CUcontext handle, CUlimit limit, size_t value)
{
	const struct client_device *device;
	struct context *context;
	CUresult r = context_find_limit(handle, limit, &context, &device);

	if (r != CUDA_SUCCESS)
		return r;
	/* These can only be read. */
	if (limit >= CU_LIMIT_SHMEM_SIZE)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	if (limit == CU_LIMIT_STACK_SIZE && value > STACK_BYTES_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > L2_FETCH_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	/* As the driver rounds. */
	if (limit == CU_LIMIT_STACK_SIZE)
		value = (value + STACK_ALIGN - 1) & ~(size_t)(STACK_ALIGN - 1);
	if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && value < HEAP_BYTES_MIN)
		value = HEAP_BYTES_MIN;
	if (limit == CU_LIMIT_PRINTF_FIFO_SIZE)
		r = set_text_limit(&value);
	else
		r = raise_limit(limit, device->limits[limit], &value);
	if (r != CUDA_SUCCESS)
		return r;
	context->limits[limit] = value;
	context->limit_set[limit] = true;
	return CUDA_SUCCESS;
}
