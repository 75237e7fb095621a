// Further windows of a session: addresses that the program reserves for device memory, and those of
// pinned memory of its sessions on other devices.

#include "server/resource/resource.h"

#include "server/resource/check.h"
#include "server/session/domain.h"
#include "server/session/holdings.h"
#include "server/session/request.h"
#include "server/session/session.h"
#include "server/session/window.h"

static int check_reserve(struct check *check, const struct wire_message *message)
{
	const struct wire_window *window = &message->window;

	if (!window->bytes || window->bytes % WINDOW_GRAIN || window->address % WINDOW_GRAIN ||
		window->alignment & (window->alignment - 1))
		return check_broken(check, "window is empty or not aligned");
	if (window->host && !window->address)
		return check_broken(check, "window for pinned memory has no address");
	return check->holdings->windows < HOLDINGS_WINDOWS_MAX
		       ? 0
		       : check_answer(check, CUDA_ERROR_OUT_OF_MEMORY);
}

static int check_release(struct check *check, const struct wire_message *message)
{
	const struct wire_range range = {.address = message->window.address, .bytes = message->window.bytes};
	const struct holding *entry =
		holdings_find_range(check->holdings, WIRE_RESERVE_WINDOW, range.address, range.bytes);

	if (!entry)
		return check_broken(check, "window is none of the session's");
	/* Memory that was freed there may still be pinned. */
	if (holding_is_host_window(entry))
		return check_broken(check, "window for pinned memory was released");
	if (holdings_overlaps(check->holdings, &range))
		return check_broken(check, "window with memory was released");
	return 0;
}

static CUresult take_window(struct request *request)
{
	struct wire_window *wish = &request->message.window;

	/* A window that was taken in an earlier life of the daemon stays taken. */
	if (request->window == WINDOW_NONE)
		request->window = window_take_further(&request->session->domain->windows, wish);
	if (request->window == WINDOW_NONE)
		return CUDA_ERROR_OUT_OF_MEMORY;
	wish->address = request->window;
	wish->free_windows = (struct wire_u64s){0};
	return CUDA_SUCCESS;
}

static const char *flaw(const struct request *request, const struct wire_u64s *values)
{
	return values->count >= 2 && values->at[0] == request->window &&
			       values->at[1] == request->message.window.bytes
		       ? NULL
		       : "answered with a window that is not its to give";
}

static int fill(struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	(void)values;
	entry->range = (struct wire_range){.address = message->window.address,
		.bytes = message->window.bytes,
		.flags = message->window.host ? HOLDING_HOST_WINDOW : 0};
	return 0;
}

static void again(const struct holding *entry, struct wire_message *message)
{
	message->window = (struct wire_window){.address = entry->range.address,
		.bytes = entry->range.bytes,
		.host = holding_is_host_window(entry)};
}

static struct holding *find(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings_find_range(
		holdings, WIRE_RESERVE_WINDOW, message->window.address, message->window.bytes);
}

static bool has(const struct holdings *holdings, const struct wire_message *message)
{
	return find(holdings, message);
}

static void drop(struct holdings *holdings, const struct wire_message *message)
{
	holdings_remove(holdings, find(holdings, message));
}

const struct resource resource_reservation_make = {.check = check_reserve,
	.prepare = take_window,
	.flaw = flaw,
	.fill = fill,
	.again = again,
	.has = has};
const struct resource resource_reservation_drop = {.check = check_release, .has = has, .drop = drop};
