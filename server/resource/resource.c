// See resource.h.

#include "server/resource/resource.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/socket.h"
#include "server/loop/shared_fd.h"
#include "server/resource/check.h"
#include "server/session/chunk.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"
#include "server/session/message.h"
#include "server/session/records.h"
#include "server/session/request.h"
#include "server/session/window.h"

const struct resource resource_nothing;

static const struct resource *resource_of(enum wire_type type)
{
	static const struct resource *const resources[WIRE_TYPES] = {
#define RESOURCE(type, kind) [WIRE_##type] = &(kind),
#include "server/resource/resources.def"
#undef RESOURCE
	};

	return (unsigned)type < WIRE_TYPES ? resources[type] : NULL;
}

/* Most that a request adds to the session's kept_bytes if it succeeds. */
static uint64_t cost_of(const struct wire_message *message)
{
	const struct resource *resource = resource_of(message->type);

	return resource && resource->cost ? resource->cost(message)
					  : WIRE_OPTIONS_MAX * sizeof(struct wire_option);
}

/*
 * Before
 */

static bool is_full(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings->count >= HOLDINGS_ENTRIES_MAX ||
	       holdings->kept_bytes + cost_of(message) > HOLDINGS_KEPT_MAX;
}

int check_request(struct check *check, const struct wire_message *message)
{
	const struct resource *resource = resource_of(message->type);
	int r = 0;

	if (!message->id)
		return check_broken(check, "request without a number");
	if (!resource)
		return check_broken(check, "not a request");
	if (resource->check)
		r = resource->check(check, message);
	else if (resource->drop && !resource->has(check->holdings, message))
		r = check_answer(check, CUDA_ERROR_INVALID_HANDLE);
	if (!r && message_is_kept(message->type) && is_full(check->holdings, message))
		return check_answer(check, CUDA_ERROR_OUT_OF_MEMORY);
	return r;
}

CUresult resource_prepare(struct request *request)
{
	const struct resource *resource = resource_of(request->message.type);

	return resource->prepare ? resource->prepare(request) : CUDA_SUCCESS;
}

const char *resource_flaw(
	const struct request *request, const struct wire_reply *reply, const struct packet *packet)
{
	const struct resource *resource = resource_of(request->message.type);

	if (packet->fd_count)
		return "answered with a descriptor";
	if (reply->code || !reply->values.count || !resource->flaw)
		return NULL;
	return resource->flaw(request, &reply->values);
}

size_t resource_record_cost(const struct wire_message *message)
{
	const struct resource *resource = resource_of(message->type);

	return sizeof(struct kept_holding) + (resource && resource->costs_no_record ? 0 : cost_of(message));
}

/*
 * Entries
 */

static bool is_range(const struct holding *entry)
{
	return entry->type == WIRE_MAP_MEMORY || entry->type == WIRE_MAP_HOST;
}

static struct holding *note_new(struct holdings *holdings, const struct wire_message *message,
	const struct wire_u64s *values, struct shared_fd *fd, struct chunk *chunk)
{
	struct holding *entry = calloc(1, sizeof(*entry));
	const struct holding *created;

	if (!entry)
		return NULL;
	entry->type = message->type;
	entry->holdings = holdings;
	if (resource_of(message->type)->fill(entry, message, values))
		return holding_free(entry);
	entry->fd = fd ? shared_fd_ref(fd) : NULL;
	entry->chunk = chunk ? chunk_ref(chunk) : NULL;
	if (chunk && is_range(entry)) {
		created = holdings_find_created(holdings, chunk);
		entry->memory = created ? created->memory : 0;
	}
	holdings_add(holdings, entry);
	return entry;
}

int resource_note(struct holdings *holdings, const struct wire_message *message,
	const struct wire_u64s *values, struct shared_fd *fd, struct chunk *chunk, struct holding **ret_entry)
{
	const struct resource *resource = resource_of(message->type);
	struct holding *entry = resource->find_same ? resource->find_same(holdings, message) : NULL;

	if (!entry) {
		*ret_entry = note_new(holdings, message, values, fd, chunk);
		return *ret_entry ? 0 : -ENOMEM;
	}
	*ret_entry = resource->change ? entry : NULL;
	if (resource->change)
		resource->change(holdings, entry, message);
	return 0;
}

bool resource_has(const struct holdings *holdings, const struct wire_message *message)
{
	const struct resource *resource = resource_of(message->type);

	return resource->has && resource->has(holdings, message);
}

void resource_drop(struct holdings *holdings, const struct wire_message *message)
{
	resource_of(message->type)->drop(holdings, message);
}

void resource_again(const struct holding *entry, uint64_t session, struct wire_message *message)
{
	const struct resource *resource = resource_of(entry->type);

	memset(message, 0, sizeof(*message));
	message->type = entry->type;
	message->session = session;
	if (resource->again)
		resource->again(entry, message);
}

/* True if a record is as an entry of its type must be. */
static bool is_possible(const struct kept_holding *kept)
{
	const struct resource *resource = resource_of((enum wire_type)kept->type);

	return resource && resource->fill && message_is_kept((enum wire_type)kept->type) &&
	       (!resource->ids || kept->attribute < resource->ids) &&
	       kept->form_bytes == resource->form_bytes && (!resource->is_named || kept->name_bytes);
}

int resource_adopt(struct holdings *holdings, const struct record *record, const struct kept_holding *kept,
	size_t bytes, struct shared_fd *fd, struct chunk *chunk)
{
	struct holding *entry = is_possible(kept) ? holding_adopt(record, kept, bytes) : NULL;

	if (!entry)
		return -EINVAL;
	if ((entry->type == WIRE_RESERVE_WINDOW &&
		    (entry->range.address == WINDOW_NONE ||
			    !window_is_possible(
				    holdings->window_set, entry->range.address, entry->range.bytes))) ||
		(is_range(entry) && (!entry->range.bytes || holdings_overlaps(holdings, &entry->range)))) {
		holding_free(entry);
		return -EINVAL;
	}
	entry->fd = fd;
	entry->chunk = chunk;
	holdings_add(holdings, entry);
	if (entry->type == WIRE_RESERVE_WINDOW && holdings->window_set)
		window_hold(holdings->window_set, entry->range.address, entry->range.bytes);
	return 0;
}
