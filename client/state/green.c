// See green.h. Runs on the program's threads.

#include "client/state/green.h"

#include "client/state/context.h"
#include "client/state/context_table.h"
#include "client/state/session.h"
#include "client/state/stream.h"

CUresult green_destroy(CUcontext handle)
{
	struct context *context = context_resolve(handle);
	CUresult r = context_ending_green(context);

	if (r != CUDA_SUCCESS)
		return r;
	stream_release_green(handle);
	return context_end_green(context);
}

CUresult green_create(int device, const struct part *part, CUcontext *ret_context)
{
	SESSION_SCOPE(&sessions[device]);
	struct context *context;
	CUresult r = context_begin_green(device, part, &context);

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_create_default(context_handle(context), &context->own);
	if (r == CUDA_SUCCESS)
		*ret_context = context_handle(context);
	else
		green_destroy(context_handle(context));
	return r;
}

CUresult green_part(CUcontext handle, struct part *ret_part)
{
	const struct context *context = context_resolve(handle);

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context_is_green(context))
		return part_of_device(context_device(handle), ret_part);
	*ret_part = context->part;
	return CUDA_SUCCESS;
}
