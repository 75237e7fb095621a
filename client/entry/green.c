// Entry points: green contexts, the multiprocessors that they are made of, and events of whole
// contexts. Splits need nothing but the library; a new green context waits until its
// multiprocessors are ready.

#include "client/entry/entry.h"

#include "client/state/activity.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/green.h"
#include "client/state/part.h"
#include "client/state/session.h"
#include "client/state/start.h"

static CUresult check_resource(const CUdevResource *resource, CUdevResourceType type)
{
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

/* First lines of questions about a context, for which the current one does not stand in. */
static CUresult enter_context(CUcontext context)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!context_is_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	return context_enter(context) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* The same for a green context. */
static CUresult enter_green(CUgreenCtx green)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	return context_green(green_context(green)) ? enter_context(green_context(green))
						   : CUDA_ERROR_INVALID_CONTEXT;
}

/* First lines of work in a context. */
static CUresult work_in_context(CUcontext context)
{
	CUresult r = process_enter_object(true, NULL);

	if (r == CUDA_SUCCESS)
		r = enter_context(context);
	return r == CUDA_SUCCESS ? process_error() : r;
}

static CUresult work_in_green(CUgreenCtx green)
{
	CUresult r = process_enter_object(true, NULL);

	if (r == CUDA_SUCCESS)
		r = enter_green(green);
	return r == CUDA_SUCCESS ? process_error() : r;
}

CUDA_EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	struct part part;
	CUresult r = process_enter_early();

	if (r == CUDA_SUCCESS)
		r = device_check(device);
	if (r == CUDA_SUCCESS)
		r = check_resource(resource, type);
	if (r == CUDA_SUCCESS)
		r = part_of_device(device, &part);
	if (r == CUDA_SUCCESS)
		part_show(&part, resource);
	return r;
}

static CUresult resource_of(CUcontext context, CUdevResource *resource, CUdevResourceType type)
{
	struct part part;
	CUresult r = check_resource(resource, type);

	if (r == CUDA_SUCCESS)
		r = green_part(context, &part);
	if (r == CUDA_SUCCESS)
		part_show(&part, resource);
	return r;
}

CUDA_EXPORT CUresult cuCtxGetDevResource(CUcontext context, CUdevResource *resource, CUdevResourceType type)
{
	CUresult r = enter_context(context);

	return r == CUDA_SUCCESS ? resource_of(context, resource, type) : r;
}

CUDA_EXPORT CUresult cuGreenCtxGetDevResource(
	CUgreenCtx green, CUdevResource *resource, CUdevResourceType type)
{
	CUresult r = enter_green(green);

	return r == CUDA_SUCCESS ? resource_of(green_context(green), resource, type) : r;
}

CUDA_EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *count,
	const CUdevResource *resource, CUdevResource *rest, unsigned int flags, unsigned int least)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	return count && resource ? part_split(groups, count, resource, rest, flags, least)
				 : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuDevResourceGenerateDesc(
	CUdevResourceDesc *description, CUdevResource *resources, unsigned int count)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	return description && resources && count ? part_describe(resources, count, description)
						 : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuGreenCtxCreate(
	CUgreenCtx *green, CUdevResourceDesc description, CUdevice device, unsigned int flags)
{
	TRACE_CALL();
	struct part part;
	CUcontext made;
	CUresult r = process_enter_early();

	if (r == CUDA_SUCCESS)
		r = device_get(device) ? process_session_error(&sessions[device]) : CUDA_ERROR_INVALID_DEVICE;
	if (r != CUDA_SUCCESS)
		return r;
	if (!green || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	r = start_session(device);
	if (r == CUDA_SUCCESS)
		r = part_described(description, device, &part);
	if (r == CUDA_SUCCESS)
		r = green_create(device, &part, &made);
	if (r == CUDA_SUCCESS)
		*green = green_handle(made);
	return r;
}

CUDA_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
	TRACE_CALL();
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!context_green(green_context(green)))
		return CUDA_ERROR_INVALID_CONTEXT;
	return green_destroy(green_context(green));
}

CUDA_EXPORT CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
	CUresult r = enter_green(green);

	if (r == CUDA_SUCCESS && !context)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*context = green_context(green);
	return r;
}

CUDA_EXPORT CUresult cuGreenCtxGetId(CUgreenCtx green, unsigned long long *id)
{
	CUresult r = enter_green(green ? green : green_handle(context_shown()));

	if (r == CUDA_SUCCESS && !id)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*id = context_id(green ? green_context(green) : context_shown());
	return r;
}

CUDA_EXPORT CUresult cuGreenCtxStreamCreate(
	CUstream *stream, CUgreenCtx green, unsigned int flags, int priority)
{
	TRACE_CALL();
	struct client_stream *made;
	CUresult r = work_in_green(green);

	if (r != CUDA_SUCCESS)
		return r;
	if (!stream || flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	r = stream_create(green_context(green), flags, priority, &made);
	if (r == CUDA_SUCCESS)
		r = activity_join(made, green_context(green));
	if (r == CUDA_SUCCESS)
		*stream = stream_handle(made);
	return r;
}

CUDA_EXPORT CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
	CUresult r = work_in_context(context);

	return r == CUDA_SUCCESS ? activity_record(context, event) : r;
}

CUDA_EXPORT CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
	CUresult r = work_in_context(context);

	return r == CUDA_SUCCESS ? activity_wait(context, event) : r;
}

CUDA_EXPORT CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
	CUresult r = work_in_green(green);

	return r == CUDA_SUCCESS ? activity_record(green_context(green), event) : r;
}

CUDA_EXPORT CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
	CUresult r = work_in_green(green);

	return r == CUDA_SUCCESS ? activity_wait(green_context(green), event) : r;
}
