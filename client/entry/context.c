// Entry points: contexts and the calling thread's stack of them. The library answers questions
// itself; only the end of a context and cuCtxSynchronize wait for work.

#include "client/entry/entry.h"

#include "client/graph/capture.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/limit.h"
#include "client/state/mempool.h"
#include "client/state/poolshare.h"
#include "client/state/session.h"
#include "client/state/start.h"
#include "client/stage/bounce.h"
#include "client/state/thread.h"
#include "client/submit/wait.h"

/* The answer of cuCtxGetApiVersion: contexts have had this interface since driver 3.2. */
#define CONTEXT_API_VERSION 3020

/* First lines of every question about the current context, also about a faulted context. */
static CUresult enter_question(const void *output)
{
	CUcontext context = context_shown();
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context_is_live(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return output ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The context of a handle: NULL is the current context. */
static CUresult enter_context(CUcontext handle, const void *output, CUcontext *ret_context)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle)
		handle = context_shown();
	if (!context_is_known(handle))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context_is_live(handle))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_context = handle;
	return output ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult create(CUcontext *context, unsigned int flags, CUdevice device)
{
	CUresult r = process_enter_early();

	if (r == CUDA_SUCCESS)
		r = device_get(device) ? process_session_error(&sessions[device]) : process_error();
	if (r != CUDA_SUCCESS)
		return r;
	if (!context || !context_flags_valid(flags))
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_get(device))
		return CUDA_ERROR_INVALID_DEVICE;
	r = start_session(device);
	if (r == CUDA_SUCCESS)
		r = context_create(device, flags, context);
	return r == CUDA_SUCCESS ? thread_push(*context) : r;
}

CUDA_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	TRACE_CALL();

	return create(context, flags, device);
}

CUDA_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	TRACE_CALL();

	return create(context, flags, device);
}

CUDA_EXPORT CUresult cuCtxCreate_v3(
	CUcontext *context, CUexecAffinityParam *parameters, int count, unsigned int flags, CUdevice device)
{
	TRACE_CALL();
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (parameters && count > 0)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(context, flags, device);
}

CUDA_EXPORT CUresult cuCtxCreate_v4(
	CUcontext *context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device)
{
	TRACE_CALL();
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (parameters && parameters->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (parameters && parameters->execAffinityParams && parameters->numExecAffinityParams > 0)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(context, flags, device);
}

CUDA_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
	TRACE_CALL();
	CUcontext popped;
	CUresult r = process_enter_early();

	if (r == CUDA_SUCCESS)
		r = context_destroy(context);
	if (r == CUDA_SUCCESS && context_shown() == context)
		thread_pop(&popped);
	return r;
}

CUDA_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
	return cuCtxDestroy_v2(context);
}

CUDA_EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
	CUcontext current = context_current();
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!context || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = context_attach(current);
	if (r == CUDA_SUCCESS)
		*context = current;
	return r;
}

CUDA_EXPORT CUresult cuCtxDetach(CUcontext context)
{
	CUcontext popped;
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (context != context_shown())
		return CUDA_ERROR_INVALID_CONTEXT;
	r = context_detach(context);
	if (r == CUDA_SUCCESS && !context_is_live(context))
		thread_pop(&popped);
	return r;
}

CUDA_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	return context_is_known(context) ? thread_push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUDA_EXPORT CUresult cuCtxPushCurrent(CUcontext context)
{
	return cuCtxPushCurrent_v2(context);
}

CUDA_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	CUcontext popped;
	CUresult r = process_enter_early();

	if (r == CUDA_SUCCESS)
		r = thread_pop(&popped);
	if (r == CUDA_SUCCESS && context)
		*context = popped;
	return r;
}

CUDA_EXPORT CUresult cuCtxPopCurrent(CUcontext *context)
{
	return cuCtxPopCurrent_v2(context);
}

/* A primary context may be made current before any call retains it. */
CUDA_EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (context && !context_is_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	thread_set(context);
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = context_shown();
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
	CUcontext named;
	CUresult r = enter_context(context, device, &named);

	if (r == CUDA_SUCCESS)
		*device = context_device(named);
	return r;
}

CUDA_EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	return cuCtxGetDevice_v2(device, NULL);
}

CUDA_EXPORT CUresult cuCtxGetFlags(unsigned int *flags)
{
	CUresult r = enter_question(flags);

	if (r == CUDA_SUCCESS)
		*flags = context_flags(context_current());
	return r;
}

CUDA_EXPORT CUresult cuCtxSetFlags(unsigned int flags)
{
	CUresult r = enter_question(&flags);

	if (r != CUDA_SUCCESS)
		return r;
	if (!context_flags_valid(flags))
		return CUDA_ERROR_INVALID_VALUE;
	context_set_flags(context_current(), flags);
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
	CUcontext named;
	CUresult r = enter_context(context, id, &named);

	if (r == CUDA_SUCCESS)
		*id = context_id(named);
	return r;
}

CUDA_EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	/* Answers for a destroyed context, too: the runtime asks before a reset of the device, and
	 * passes any other error on. */
	if (!context_is_live(context ? context : context_shown()))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = CONTEXT_API_VERSION;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	CUresult r = enter_question(value);

	return r == CUDA_SUCCESS ? context_limit(context_current(), limit, value) : r;
}

CUDA_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	CUresult r = enter_unsafe();

	return r == CUDA_SUCCESS ? limit_set(context_current(), limit, value) : r;
}

CUDA_EXPORT CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
	CUresult r = enter_question(config);

	if (r == CUDA_SUCCESS)
		*config = context_cache_config(context_current());
	return r;
}

CUDA_EXPORT CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	CUresult r = also_unsafe(enter_question(&config));

	if (r == CUDA_SUCCESS && (unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		context_set_cache_config(context_current(), config);
	return r;
}

CUDA_EXPORT CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
	CUresult r = enter_question(config);

	if (r == CUDA_SUCCESS)
		*config = context_shared_config(context_current());
	return r;
}

CUDA_EXPORT CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	CUresult r = enter_question(&config);

	if (r == CUDA_SUCCESS && (unsigned int)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		context_set_shared_config(context_current(), config);
	return r;
}

CUDA_EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUcontext context = context_current();
	CUresult r = enter_question(&context);
	const struct client_device *device;

	if (r != CUDA_SUCCESS)
		return r;
	device = device_get(context_device(context));
	if (least)
		*least = device->priority_least;
	if (greatest)
		*greatest = device->priority_greatest;
	return CUDA_SUCCESS;
}

/* A hint to the cache that all programs share. */
CUDA_EXPORT CUresult cuCtxResetPersistingL2Cache(void)
{
	return process_enter_context();
}

static CUresult synchronize(CUcontext context)
{
	CUresult r = capture_none();

	if (r == CUDA_SUCCESS)
		r = wait_context(context);
	mempool_settle();
	poolshare_settle();
	bounce_settle();
	return r;
}

CUDA_EXPORT CUresult cuCtxSynchronize(void)
{
	TRACE_CALL();
	CUresult r = process_enter_context();

	return r == CUDA_SUCCESS ? synchronize(context_shown()) : r;
}

CUDA_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
	TRACE_CALL();
	CUcontext named;
	CUresult r;

	if (!context)
		return cuCtxSynchronize();
	r = enter_context(context, &named, &named);
	if (r != CUDA_SUCCESS)
		return r;
	context_enter(named);
	r = process_error();
	return r == CUDA_SUCCESS ? synchronize(named) : r;
}

/* All contexts of a program on a device have the same multiprocessors. */
CUDA_EXPORT CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type)
{
	CUresult r = process_enter_context();
	int processors = 0;

	if (r == CUDA_SUCCESS && context_green(context_shown()))
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r != CUDA_SUCCESS)
		return r;
	if (!affinity)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	r = device_attribute(device_get(context_device(context_current())),
		CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &processors);
	if (r != CUDA_SUCCESS)
		return r;
	affinity->type = type;
	affinity->param.smCount.val = (unsigned int)processors;
	return CUDA_SUCCESS;
}
