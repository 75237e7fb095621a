// See start.h. The process calls begin() only in a single thread at a time (process.h).

#include "client/state/start.h"

#include <stdlib.h>

#include "client/link/connect.h"
#include "client/stage/arena.h"
#include "client/state/code_cache.h"
#include "client/state/device.h"
#include "client/state/event.h"
#include "client/state/host.h"
#include "client/state/image_kinds.h"
#include "client/state/log.h"
#include "client/state/memory.h"
#include "client/state/process.h"
#include "client/state/space.h"
#include "client/state/stream.h"
#include "client/state/stream_slot.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"
#include "client/trace/trace.h"

static CUresult connect_service(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct control_answer *welcome;
	CUresult r;

	if (device_all_hidden(visible))
		return CUDA_ERROR_NO_DEVICE;
	if (device_is_mig(visible)) {
		client_log(CLIENT_LOG_ERROR,
			"CUDA_VISIBLE_DEVICES=%.64s names a MIG device: the service serves whole GPUs",
			visible);
		return CUDA_ERROR_NO_DEVICE;
	}
	welcome = control_answer_new();
	if (!welcome)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = connect_open(welcome);
	if (r == CUDA_SUCCESS) {
		r = device_snapshot(&welcome->message.welcome, visible);
		if (r != CUDA_SUCCESS)
			connect_close();
	}
	control_answer_free(welcome);
	return r;
}

static bool is_set(const char *variable)
{
	const char *value = getenv(variable);

	return value && atoi(value) != 0;
}

/* The driver's variables, without those of its cache of compiled code (code_cache.h). */
static void read_variables(void)
{
	bool no_text = is_set("CUDA_DISABLE_PTX_JIT"), none = is_set("CUDA_DISABLE_JIT");
	bool only_text = is_set("CUDA_FORCE_PTX_JIT");

	wait_launches = is_set("CUDA_LAUNCH_BLOCKING");
	image_left_out = (struct image_kinds){.code = only_text || is_set("CUDA_FORCE_JIT"),
		.text = no_text || none,
		.intermediate = only_text || none};
}

/* It has no context and no handle: the program does not know it. */
static struct client_stream *make_stream(void)
{
	struct client_stream *stream;

	return stream_create(NULL, CU_STREAM_NON_BLOCKING, 0, &stream) == CUDA_SUCCESS ? stream : NULL;
}

static void build(void)
{
	read_variables();
	code_cache_start();
	submit_start();
	stream_table_init();
	memory_start();
	space_start();
	host_start();
	arena_start();
	trace_start(event_take_number, make_stream);
	client_log(CLIENT_LOG_INFO, "session %llu, window at %#llx", (unsigned long long)connection.session,
		(unsigned long long)connection.window_base);
}

static CUresult begin(void)
{
	CUresult r = connect_service();

	if (r == CUDA_SUCCESS)
		build();
	return r;
}

CUresult start_driver(void)
{
	return process_start(begin);
}
