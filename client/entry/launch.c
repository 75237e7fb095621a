// Kernel launches: look the handles up, make the driver's checks, write a record. The shortest path
// of the library; a launch takes no lock but the ring's and asks the service nothing, except for
// the first launch of a cooperative kernel (do its blocks fit the device at once?).

#include "client/entry/entry.h"
#include "client/graph/capture.h"
#include "client/state/event.h"
#include "client/state/function.h"
#include "client/state/instance.h"
#include "client/state/session.h"
#include "client/state/stream.h"
#include "client/submit/cooperative.h"
#include "client/submit/encode.h"
#include "client/submit/submit.h"
#include "client/trace/trace.h"

static CUresult each_event(const struct launch *launch, struct client_stream *stream,
	CUresult (*visit)(CUevent event, struct client_stream *stream))
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; result == CUDA_SUCCESS && i < launch->attribute_total; ++i) {
		CUevent event = encode_event(&launch->attributes[i]);

		if (event)
			result = visit(event, stream);
	}
	return result;
}

static CUresult check_event(CUevent event, struct client_stream *stream)
{
	(void)stream;
	return event_check_launch(event);
}

/* A launch asks once for the trace; from then on the answer is a constant. */
#define LAUNCH_INLINE inline __attribute__((always_inline))

static LAUNCH_INLINE CUresult submit_launch(
	const struct launch *launch, struct client_stream *stream, bool traced)
{
	struct submit_timing *timing = traced ? trace_launch(launch, stream) : NULL;
	uint32_t bytes = encode_bytes(launch);
	struct submit submit;
	CUresult result = traced ? submit_begin_timed(stream, FRMPS_OP_LAUNCH, bytes, timing, &submit)
				 : submit_begin(stream, FRMPS_OP_LAUNCH, bytes, &submit);

	if (result != CUDA_SUCCESS)
		return traced ? trace_submitted(timing, result) : result;
	if (launch->cooperative)
		submit.head->flags |= FRMPS_CMD_COOPERATIVE;
	encode_launch(launch, submit.body);
	function_launched(launch->function);
	if (!traced) {
		submit_commit(&submit);
		return CUDA_SUCCESS;
	}
	submit_commit_timed(&submit, timing, false);
	return trace_submitted(timing, CUDA_SUCCESS);
}

/* Events that a launch says are to be recorded when its blocks have begun, or say so themselves, at
 * the earliest: here they are recorded behind it. */
static CUresult launch_with_events(const struct launch *launch, struct client_stream *stream, bool traced)
{
	CUresult result = each_event(launch, stream, check_event);

	if (result == CUDA_SUCCESS)
		result = capture_is_on(stream) ? capture_launch(stream, launch)
					       : submit_launch(launch, stream, traced);
	return result == CUDA_SUCCESS ? each_event(launch, stream, event_record) : result;
}

/* The kernel has such launches, or the error says why not. */
static LAUNCH_INLINE CUresult check(struct launch *launch, const struct client_stream *stream)
{
	CUresult result = encode_check(launch);

	return __builtin_expect(launch->cooperative, 0) && result == CUDA_SUCCESS
		       ? cooperative_check(launch, stream)
		       : result;
}

static LAUNCH_INLINE CUresult run(
	struct launch *launch, CUstream handle, bool per_thread, void **params, void **extra, bool traced)
{
	struct client_stream *stream = launch->stream;
	CUresult result = stream ? CUDA_SUCCESS : stream_resolve(handle, per_thread, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (__builtin_expect(launch->function->session != stream->session, 0))
		return CUDA_ERROR_INVALID_HANDLE;
	launch->is_node = capture_is_on(stream);
	result = check(launch, stream);
	if (__builtin_expect(result != CUDA_SUCCESS, 0))
		return launch->is_node ? capture_fail(stream, result) : result;
	result = encode_arguments(launch, params, extra);
	if (result != CUDA_SUCCESS)
		return result;
	if (__builtin_expect(launch->event_count, 0))
		result = launch_with_events(launch, stream, traced);
	else
		result = launch->is_node ? capture_launch(stream, launch)
					 : submit_launch(launch, stream, traced);
	return leave_launch(result, stream);
}

static TRACE_COLD CUresult run_traced(
	struct launch *launch, CUstream handle, bool per_thread, void **params, void **extra)
{
	struct trace_call call = trace_enter(launch->extended	   ? "cuLaunchKernelEx"
					     : launch->cooperative ? "cuLaunchCooperativeKernel"
								   : "cuLaunchKernel");
	CUresult result = run(launch, handle, per_thread, params, extra, true);

	trace_leave(&call);
	return result;
}

/* Everything in `launch` but the arguments is filled in and its handles are valid. */
static CUresult launch_checked(
	struct launch *launch, CUstream handle, bool per_thread, void **params, void **extra)
{
	return trace_is_on() ? run_traced(launch, handle, per_thread, params, extra)
			     : run(launch, handle, per_thread, params, extra, false);
}

/* Looks the handles up. A launch belongs to the context of its stream; for a default stream to the
 * current one (NULL). */
static inline CUresult begin(struct launch *launch, CUfunction handle, CUstream where)
{
	bool has_context = stream_has_context(where);
	struct client_stream *stream = has_context ? stream_find(where) : NULL;
	CUresult result = process_enter_object(has_context, stream ? stream->session : NULL);
	struct client_function *function;

	if (result != CUDA_SUCCESS)
		return result;
	result = function_use(handle, &function);
	if (__builtin_expect(word_relaxed(&instance_matters), 0) && result == CUDA_SUCCESS)
		result = instance_function(function, stream ? stream->context : NULL, &function);
	launch->function = function;
	launch->stream = stream;
	return result;
}

static inline CUresult launch_kernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
	unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
	void **params, void **extra, bool per_thread)
{
	struct launch launch = {.grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared_bytes = shared};
	CUresult result = begin(&launch, f, stream);

	if (result != CUDA_SUCCESS)
		return result;
	return launch_checked(&launch, stream, per_thread, params, extra);
}

static inline CUresult launch_cooperative(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
	unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
	void **params, bool per_thread)
{
	struct launch launch = {.grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared_bytes = shared};
	CUresult result = begin(&launch, f, stream);

	if (result != CUDA_SUCCESS)
		return result;
	launch.cooperative = true;
	return launch_checked(&launch, stream, per_thread, params, NULL);
}

static inline CUresult launch_ex(
	const CUlaunchConfig *config, CUfunction f, void **params, void **extra, bool per_thread)
{
	struct launch launch = {0};
	CUresult result = begin(&launch, f, config ? config->hStream : NULL);

	if (result != CUDA_SUCCESS)
		return result;
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	launch.grid[0] = config->gridDimX;
	launch.grid[1] = config->gridDimY;
	launch.grid[2] = config->gridDimZ;
	launch.block[0] = config->blockDimX;
	launch.block[1] = config->blockDimY;
	launch.block[2] = config->blockDimZ;
	launch.shared_bytes = config->sharedMemBytes;
	launch.extended = true;
	if (config->numAttrs > 0) {
		result = encode_attributes(&launch, config->attrs, config->numAttrs);
		if (result != CUDA_SUCCESS)
			return result;
	}
	return launch_checked(&launch, config->hStream, per_thread, params, extra);
}

ENTRY_PAIR_UNTRACED(cuLaunchKernel, _ptsz, launch_kernel,
	(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
		unsigned int bz, unsigned int shared, CUstream stream, void **params, void **extra),
	f, gx, gy, gz, bx, by, bz, shared, stream, params, extra)

ENTRY_PAIR_UNTRACED(cuLaunchCooperativeKernel, _ptsz, launch_cooperative,
	(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
		unsigned int bz, unsigned int shared, CUstream stream, void **params),
	f, gx, gy, gz, bx, by, bz, shared, stream, params)

ENTRY_PAIR_UNTRACED(cuLaunchKernelEx, _ptsz, launch_ex,
	(const CUlaunchConfig *config, CUfunction f, void **params, void **extra), config, f, params, extra)
