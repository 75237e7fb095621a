// Opening and closing the driver for a role, and the table of the backend. The executor uses the
// device's primary context: the only context that every part of the driver can serve from
// (libraries and their kernels too), and an executor process has no use for a second context. The
// keeper never gets past cuInit.

#include <stdio.h>

#include "server/backend/cuda/condition.h"
#include "server/backend/cuda/contain.h"
#include "server/backend/cuda/crash.h"
#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/exception.h"
#include "server/backend/cuda/loader.h"
#include "server/backend/cuda/loader_trial.h"
#include "server/backend/cuda/nvjit.h"
#include "server/backend/cuda/text.h"
#include "server/clock.h"
#include "server/log.h"

struct cuda cuda;

/* Times of the steps of opening the device, for the log. */
static struct {
	uint64_t first, last; /* ns */
	char text[256];
	size_t used;
} opening;

static void opening_begin(void)
{
	opening.first = opening.last = clock_now();
	opening.used = 0;
}

/* Everything since the last call was @what. */
static void opening_spent(const char *what)
{
	uint64_t now = clock_now();
	int wrote = snprintf(opening.text + opening.used, sizeof(opening.text) - opening.used, "%s%s %llu",
		opening.used ? ", " : "", what, (unsigned long long)((now - opening.last) / CLOCK_MS));

	if (wrote > 0 && (size_t)wrote < sizeof(opening.text) - opening.used)
		opening.used += (size_t)wrote;
	opening.last = now;
}

static CUresult start(int ordinal)
{
	char text[256];
	CUresult code = driver_open(text, sizeof(text));

	if (code) {
		fprintf(stderr, "%s\n", text);
		return code;
	}
	code = driver.init(0);
	opening_spent("driver");
	if (!code)
		code = driver.device_get(&cuda.device, ordinal);
	if (!code && cuda_device_unfit(cuda.device) != UNFIT_NOT)
		code = CUDA_ERROR_NOT_SUPPORTED;
	return code;
}

static void close_backend(void)
{
	cuda_text_close();
	cuda_condition_close();
	loader_close();
	if (!cuda.context)
		return;
	cuda_spare_give();
	cuda_clock_close();
	cuda_stream_close();
	contain_disarm();
	driver.primary_release(cuda.device);
	cuda.context = NULL;
}

static void arm(void)
{
	int multiprocessors = 0;

	if (!backend_is_unproved && !driver.device_attribute(&multiprocessors,
					    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, cuda.device))
		exception_open((uint32_t)multiprocessors);
	contain_arm();
}

static CUresult open_executor(int ordinal, struct backend_device *ret_device)
{
	CUresult code;

	opening_begin();
	code = start(ordinal);
	if (code)
		return code;
	/* No executor thread waits inside the driver, so the driver's way of waiting does not
	 * matter. */
	code = driver.primary_set_flags(cuda.device, CU_CTX_SCHED_AUTO);
	if (code && code != CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE)
		return code;
	code = driver.primary_retain(&cuda.context, cuda.device);
	if (code) {
		cuda.context = NULL;
		return code;
	}
	code = driver.context_set(cuda.context);
	opening_spent("context");
	if (!code)
		code = cuda_device_read(cuda.device, ret_device);
	if (code)
		close_backend();
	else
		cuda_sms_read(cuda.device, ret_device);
	nvjit.arch = cuda_arch();
	opening_spent("attributes");
	/* Before anything runs: the trap handler is changed (handler.h). */
	if (!code && backend_is_served)
		arm();
	opening_spent("faults");
	if (!code) {
		cuda_stream_open();
		opening_spent("streams");
		if (loader_open(cuda.device)) {
			opening_spent("trampolines");
			if (loader_is_proved())
				loader_open_caches(cuda.device);
			else
				loader_disable();
		}
		opening_spent("trial of the loader");
		cuda_builtin_open();
		cuda_text_open();
		cuda_condition_open();
		opening_spent("own kernels");
		cuda_spare_keep();
		cuda_clock_open();
		opening_spent("clock");
		log_debug("the device is open after %llu ms: %s",
			(unsigned long long)((opening.last - opening.first) / CLOCK_MS), opening.text);
	}
	return code;
}

/* The first compilation finds everything loaded. */
static CUresult open_compiler(unsigned arch)
{
	nvjit.arch = arch;
	nvjit_open();
	return CUDA_SUCCESS;
}

static CUresult thread_enter(void)
{
	contain_enter_thread();
	crash_enter_thread();
	return cuda.context ? driver.context_set(cuda.context) : CUDA_SUCCESS;
}

const struct backend_ops backend_cuda = {
	.name = "cuda",
	.trial = &cuda_trial,
	.probe = cuda_probe,
	.open_keeper = start,
	.open_executor = open_executor,
	.open_compiler = open_compiler,
	.close = close_backend,
	.thread_enter = thread_enter,
	.fence = cuda_fence,
	.thread_show = crash_show_thread,
	.kernels_end = exception_end,
	.chunk_create = cuda_chunk_create,
	.chunk_release = cuda_chunk_release,
	.window_reserve = cuda_window_reserve,
	.window_release = cuda_window_release,
	.chunk_map = cuda_chunk_map,
	.chunk_unmap = cuda_chunk_unmap,
	.sink_open = cuda_sink_open,
	.sink_close = cuda_sink_close,
	.sink_map = cuda_sink_map,
	.sink_unmap = cuda_sink_unmap,
	.sink_mappings_max = UINT32_MAX,
	.host_register = cuda_host_register,
	.host_unregister = cuda_host_unregister,
	.limit_set = cuda_limit_set,
	.memory_info = cuda_memory_info,
	.tensor_map = cuda_tensor_map,
	.link_create = cuda_link_create,
	.link_add = cuda_link_add,
	.link_complete = cuda_link_complete,
	.link_logs = cuda_link_logs,
	.link_destroy = cuda_link_destroy,
	.module_compile = cuda_module_compile,
	.module_load = cuda_module_load,
	.module_unload = cuda_module_unload,
	.module_waits = cuda_module_waits,
	.module_statics = cuda_module_statics,
	.function_find = cuda_function_find,
	.global_find = cuda_global_find,
	.function_list = cuda_function_list,
	.function_set = cuda_function_set,
	.occupancy = cuda_occupancy,
	.array_make = cuda_array_make,
	.array_back = cuda_array_back,
	.array_free = cuda_array_free,
	.object_make = cuda_object_make,
	.object_free = cuda_object_free,
	.object_settle = cuda_object_settle,
	.sms_make = cuda_sms_make,
	.stream_create = cuda_stream_create,
	.stream_destroy = cuda_stream_destroy,
	.stream_query = cuda_stream_query,
	.event_create = cuda_event_create,
	.event_destroy = cuda_event_destroy,
	.event_record = cuda_event_record,
	.event_time = cuda_event_time,
	.stream_wait = cuda_stream_wait,
	.launch = cuda_launch,
	.copy = cuda_copy,
	.set = cuda_set,
	.write_value = cuda_write_value,
	.check = cuda_check,
	.graph_make = cuda_graph_make,
	.graph_free = cuda_graph_free,
	.graph_change = cuda_graph_change,
	.graph_launch = cuda_graph_launch,
	.mark = cuda_mark,
};
