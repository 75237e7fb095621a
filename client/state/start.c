// See start.h. The process calls begin() and open_session() only in a single thread at a time
// (process.h).

#include "client/state/start.h"

#include <stdlib.h>

#include "client/link/connect.h"
#include "client/link/mps.h"
#include "client/stage/arena.h"
#include "client/state/code_cache.h"
#include "client/state/context.h"
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
#include "protocol/command.h"
#include "protocol/place.h"

static CUresult no_memory_limit(void)
{
	client_log(CLIENT_LOG_ERROR,
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT names a UUID, and the running service is too old to "
		"describe its device: restart it");
	return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

/* The service has one device, and the process has its session. */
static CUresult take_only_device(const struct wire_welcome *welcome, const char *list)
{
	CUresult r;

	device_begin(1);
	device_add(0, &welcome->devices[0], 0, connection.has_host_memory);
	r = device_choose(list);
	if (r == CUDA_SUCCESS)
		device_settle(0, &welcome->devices[0], connection.has_host_memory);
	else
		connect_close();
	return r;
}

/* Adds a device to the list. */
static CUresult take_description(const struct wire_description *description)
{
	const struct mps_device device = {description->number, description->device.uuid.at};
	uint64_t limit;
	bool needs_uuid;
	CUresult r = mps_memory_limit(&device, &limit, &needs_uuid);

	if (r == CUDA_SUCCESS)
		device_add(description->number, &description->device, limit,
			description->features & FRMPS_FEATURE_HOST);
	return r;
}

/* Asks for the devices behind the first that has answered. One that does not answer is missing: the
 * others are there all the same. */
static CUresult take_others(unsigned first, unsigned count, struct control_answer *answer)
{
	CUresult r = CUDA_SUCCESS;

	for (unsigned i = first + 1; r == CUDA_SUCCESS && i < count; ++i)
		if (connect_open(i, 0, CONNECT_DESCRIPTION, answer) == CUDA_SUCCESS)
			r = take_description(&answer->message.description);
		else
			client_log(CLIENT_LOG_ERROR,
				"device %u of the service does not answer: the program does not see it", i);
	return r;
}

/* Asks the first device that is there, which also says how many there are. */
static CUresult ask_first(struct control_answer *answer, unsigned *ret_number, bool *ret_needs_uuid)
{
	const struct mps_device device = {0};
	uint64_t limit;
	CUresult r = mps_memory_limit(&device, &limit, ret_needs_uuid);

	if (r != CUDA_SUCCESS)
		return r;
	*ret_number = 0;
	r = connect_open(0, limit, *ret_needs_uuid ? CONNECT_DESCRIPTION : CONNECT_SESSION_OF_ONE, answer);
	for (unsigned i = 1; r == CUDA_ERROR_MPS_CONNECTION_FAILED && i < PLACE_DEVICES; ++i) {
		if (!connect_is_place(i))
			continue;
		*ret_number = i;
		if (connect_open(i, 0, CONNECT_DESCRIPTION, answer) == CUDA_SUCCESS)
			r = CUDA_SUCCESS;
	}
	return r;
}

static CUresult list_devices(const char *list, struct control_answer *answer, bool *ret_has_session)
{
	const struct wire_description *first = &answer->message.description;
	unsigned number, count;
	bool needs_uuid;
	CUresult r = ask_first(answer, &number, &needs_uuid);

	if (r != CUDA_SUCCESS)
		return r;
	*ret_has_session = answer->message.type == WIRE_WELCOME;
	if (*ret_has_session && needs_uuid) {
		connect_close();
		return no_memory_limit();
	}
	if (*ret_has_session)
		return take_only_device(&answer->message.welcome, list);
	count = first->count;
	device_begin(count);
	r = take_description(first);
	if (r == CUDA_SUCCESS)
		r = take_others(number, count, answer);
	return r == CUDA_SUCCESS ? device_choose(list) : r;
}

static CUresult connect_service(bool *ret_has_session)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	struct control_answer *answer;
	CUresult r;

	if (device_all_hidden(list))
		return CUDA_ERROR_NO_DEVICE;
	if (device_is_mig(list)) {
		client_log(CLIENT_LOG_ERROR,
			"CUDA_VISIBLE_DEVICES=%.64s names a MIG device: the service serves whole GPUs", list);
		return CUDA_ERROR_NO_DEVICE;
	}
	answer = control_answer_new();
	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mps_report_unsupported();
	r = list_devices(list, answer, ret_has_session);
	control_answer_free(answer);
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

/* The session on one of several devices. */
static CUresult open_session(int ordinal)
{
	const struct client_device *device = device_get(ordinal);
	struct control_answer *answer;
	uint64_t limit;
	bool needs_uuid;
	CUresult r;

	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	r = mps_memory_limit(&(struct mps_device){device->number, device->uuid}, &limit, &needs_uuid);
	if (r != CUDA_SUCCESS)
		return r;
	answer = control_answer_new();
	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = connect_open(device->number, limit, CONNECT_SESSION, answer);
	if (r == CUDA_SUCCESS) {
		device_settle(ordinal, &answer->message.welcome.devices[0], connection.has_host_memory);
		build();
	}
	control_answer_free(answer);
	return r;
}

/* For calls that name no device: that of the current context, else the first. */
static CUresult open_any(void)
{
	int ordinal = context_device(context_current());

	return start_session(ordinal < 0 ? 0 : ordinal);
}

static CUresult begin(bool *ret_has_session)
{
	CUresult r = connect_service(ret_has_session);

	if (r == CUDA_SUCCESS && *ret_has_session)
		build();
	return r;
}

CUresult start_driver(void)
{
	return process_start(begin, open_any);
}

CUresult start_session(int ordinal)
{
	CUresult r = device_own() < 0 ? process_open(open_session, ordinal) : CUDA_SUCCESS;

	return r == CUDA_SUCCESS ? device_check(ordinal) : r;
}

CUresult start_enter(int ordinal)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS || device_own() >= 0)
		return r;
	return device_get(ordinal) ? start_session(ordinal) : process_enter();
}

CUresult start_enter_at(const CUmemLocation *location)
{
	return start_enter(location && location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : -1);
}
