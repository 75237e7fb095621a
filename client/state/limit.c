// See limit.h.

#include "client/state/limit.h"

#include <pthread.h>
#include <stdbool.h>

#include "client/link/control.h"
#include "client/submit/wait.h"

/* What the service has set for this program alone; held while it is asked. */
static uint64_t in_force[CU_LIMIT_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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

CUresult limit_raise(CUlimit limit, uint64_t there, size_t *value)
{
	CUresult r = CUDA_SUCCESS;

	if (!is_needed(limit) || *value <= there)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	if (*value > in_force[limit]) {
		r = wait_all_quietly();
		if (r == CUDA_SUCCESS)
			r = ask(limit, value);
		if (r == CUDA_SUCCESS)
			in_force[limit] = *value;
	}
	pthread_mutex_unlock(&lock);
	return r;
}
