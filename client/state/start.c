// See start.h. The process calls begin() and open_session() only in a single thread at a time
// (process.h). That thread works in the session that begins.

#include "client/state/start.h"

#include <stdlib.h>

#include "client/link/connect.h"
#include "client/link/control.h"
#include "client/link/inquiry.h"
#include "client/link/mps.h"
#include "client/stage/arena.h"
#include "client/stage/ferry.h"
#include "client/state/code_cache.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/event.h"
#include "client/state/host.h"
#include "client/state/image_kinds.h"
#include "client/state/limit.h"
#include "client/state/log.h"
#include "client/state/memory.h"
#include "client/state/peer.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "client/state/shared_event.h"
#include "client/state/space.h"
#include "client/state/stream.h"
#include "client/submit/callback.h"
#include "client/submit/gate.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"
#include "client/text/text.h"
#include "client/trace/trace.h"
#include "protocol/command.h"
#include "protocol/place.h"

/* The service has one device, and the process has its session. */
static CUresult take_only_device(const struct wire_welcome *welcome, const char *list)
{
	CUresult r;

	device_add(0, 1, &welcome->device, 0);
	r = device_choose(list);
	if (r == CUDA_SUCCESS)
		device_settle(0, &welcome->device);
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
		device_add(description->number, description->count, &description->device, limit);
	return r;
}

/* Asks for the other devices that the program may see. One that does not answer is missing: the
 * others are there all the same.
 * @tried: by number, devices that have been asked */
static CUresult take_others(const char *list, const bool *tried, struct control_answer *answer)
{
	const unsigned most = device_listed() ? device_listed() : PLACE_DEVICES;
	bool asked[PLACE_DEVICES] = {false};
	CUresult r;

	for (unsigned i = 0; i < most; ++i)
		asked[i] = !tried[i] && connect_is_place(i) && device_may_be_seen(list, i, most);
	r = inquiry_ask(asked, answer, take_description);
	for (unsigned i = 0; r == CUDA_SUCCESS && i < device_listed(); ++i)
		if (!device_is_known(i) && device_may_be_seen(list, i, device_listed()))
			client_log(CLIENT_LOG_ERROR,
				"device %u of the service does not answer: the program does not see it", i);
	return r;
}

/* Asks a device that also says how many there are: the one that the list names first, since another
 * one may hang, or the first. @tried: by number, set for devices that were asked */
static CUresult ask_first(const char *list, struct control_answer *answer, bool *tried)
{
	const unsigned named = device_named_first(list);
	const struct mps_device device = {0};
	uint64_t limit;
	bool needs_uuid;
	CUresult r = mps_memory_limit(&device, &limit, &needs_uuid);

	if (r != CUDA_SUCCESS)
		return r;
	tried[named] = named && connect_is_place(named);
	if (tried[named] && connect_open(named, 0, CONNECT_DESCRIPTION, answer) == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	tried[0] = true;
	return connect_open(0, limit, needs_uuid ? CONNECT_DESCRIPTION : CONNECT_SESSION_OF_ONE, answer);
}

static bool is_missing(CUresult r)
{
	return r == CUDA_ERROR_MPS_CONNECTION_FAILED || r == CUDA_ERROR_MPS_SERVER_NOT_READY;
}

static CUresult list_devices(const char *list, struct control_answer *answer, bool *ret_has_session)
{
	bool tried[PLACE_DEVICES] = {false};
	CUresult first, r = CUDA_SUCCESS;

	device_begin();
	first = ask_first(list, answer, tried);
	if (first != CUDA_SUCCESS && !is_missing(first))
		return first;
	*ret_has_session = first == CUDA_SUCCESS && answer->message.type == WIRE_WELCOME;
	if (*ret_has_session)
		return take_only_device(&answer->message.welcome, list);
	if (first == CUDA_SUCCESS)
		r = take_description(&answer->message.description);
	if (r == CUDA_SUCCESS)
		r = take_others(list, tried, answer);
	if (r == CUDA_SUCCESS && !device_listed())
		return first;
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
	if (r == CUDA_ERROR_NO_DEVICE && list)
		client_log(CLIENT_LOG_ERROR,
			"CUDA_VISIBLE_DEVICES=%.64s names no device of the service: its numbers count in the "
			"service's list of %u",
			list, device_listed());
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

/* The connection is there: begins the rooms' parts of the session. */
static CUresult build(void)
{
	const struct connection *connection = &session_self()->connection;

	CUresult r;

	control_start();
	r = peer_join();
	if (r == CUDA_SUCCESS && !stream_start())
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		peer_leave();
		connect_close();
		return r;
	}
	submit_start();
	callback_start();
	gate_start();
	limit_start();
	text_start();
	memory_start();
	space_start();
	host_start();
	shared_event_start();
	arena_start();
	ferry_start(make_stream);
	trace_start(event_take_number, make_stream);
	client_log(CLIENT_LOG_INFO, "session %llu, window at %#llx", (unsigned long long)connection->session,
		(unsigned long long)connection->window_base);
	return CUDA_SUCCESS;
}

/* The session on one of several devices. */
static CUresult open_session(int ordinal)
{
	const struct client_device *device = device_get(ordinal);
	struct control_answer *answer;
	uint64_t limit;
	bool needs_uuid;
	CUresult r =
		mps_memory_limit(&(struct mps_device){device->number, device->uuid}, &limit, &needs_uuid);

	if (r != CUDA_SUCCESS)
		return r;
	answer = control_answer_new();
	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	session_begin(session_self());
	r = connect_open(device->number, limit, CONNECT_SESSION, answer);
	if (r == CUDA_SUCCESS) {
		device_settle(ordinal, &answer->message.welcome.device);
		r = build();
	}
	control_answer_free(answer);
	return r;
}

static CUresult begin(bool *ret_has_session)
{
	CUresult r;

	session_use(&sessions[0]);
	session_begin(&sessions[0]);
	r = connect_service(ret_has_session);
	if (r != CUDA_SUCCESS)
		return r;
	read_variables();
	code_cache_start();
	return *ret_has_session ? build() : CUDA_SUCCESS;
}

CUresult start_driver(void)
{
	return process_start(begin, open_session);
}

CUresult start_session(int ordinal)
{
	CUresult r = device_check(ordinal);

	return r == CUDA_SUCCESS ? process_open(ordinal) : r;
}

CUresult start_enter(int ordinal)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	return device_get(ordinal) ? process_open(ordinal) : process_enter();
}

CUresult start_enter_at(const CUmemLocation *location)
{
	return start_enter(location && location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : -1);
}
