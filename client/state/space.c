// See space.h. Regions hold reservations in address order; the first gap that fits is taken. The
// first region is a part of the session's own window; the others are further windows, which go back
// to the service when nothing is reserved in them any more. Reservations for host memory lie among
// what the program has pinned (host.h), in no region.

#include "client/state/space.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client/link/connect.h"
#include "client/link/control.h"
#include "client/state/host.h"
#include "client/state/peer.h"
#include "client/state/session.h"

/* A window that turns out to be taken in this process is not asked for again. */
#define TRIES 4
/* Smaller reservations without an exact address share a window. */
#define SHARED_BYTES (UINT64_C(64) << 30)

struct reservation {
	uint64_t address, bytes;  /* as the program asked for */
	struct heap_chunk *chunk; /* of the pool of pinned memory; NULL: not for host memory */
	struct reservation *next;
};

static struct space *own(void)
{
	return &session_self()->space;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) & ~(unit - 1);
}

uint64_t space_bytes(void)
{
	return session_self()->connection.device_bytes / 24 / SPACE_GRAIN * SPACE_GRAIN;
}

void space_start(void)
{
	/* The service uses some addresses at the very end; a quarter of these bytes is more than
	 * enough. */
	const struct connection *c = &session_self()->connection;
	struct space *space = own();
	uint64_t bytes = space_bytes();

	pthread_mutex_init(&space->lock, NULL);
	pthread_mutex_init(&space->growing, NULL);
	space->home.base = c->window_base + c->device_bytes - bytes;
	space->home.bytes = bytes / 4 * 3 / SPACE_GRAIN * SPACE_GRAIN;
	space->host.base = c->window_base + c->device_bytes;
	space->host.bytes = c->host_bytes;
}

/* The link where a reservation goes that begins at or behind `at`; *at becomes the address. NULL:
 * no room. */
static struct reservation **find_gap(struct region *region, uint64_t bytes, uint64_t alignment, uint64_t *at)
{
	struct reservation **link = &region->first;
	uint64_t start = round_up(region->base, alignment);

	for (; *link; link = &(*link)->next) {
		uint64_t end = round_up((*link)->address + (*link)->bytes, SPACE_GRAIN);

		if (start < (*link)->address && (*link)->address - start >= bytes)
			break;
		start = round_up(end > start ? end : start, alignment);
	}
	if (start < region->base || start - region->base > region->bytes ||
		region->bytes - (start - region->base) < bytes)
		return NULL;
	*at = start;
	return link;
}

/* The link for a reservation at exactly this address. NULL: the address is in use. */
static struct reservation **find_exactly(struct region *region, uint64_t bytes, uint64_t address)
{
	struct reservation **link = &region->first;

	if (address < region->base || address - region->base > region->bytes ||
		region->bytes - (address - region->base) < bytes)
		return NULL;
	while (*link && round_up((*link)->address + (*link)->bytes, SPACE_GRAIN) <= address)
		link = &(*link)->next;
	return *link && (*link)->address < address + bytes ? NULL : link;
}

/* Under the lock. */
static void put(struct reservation *reservation, struct reservation **link, uint64_t at)
{
	reservation->address = at;
	reservation->next = *link;
	*link = reservation;
}

static bool place_exactly(struct reservation *reservation, uint64_t room, uint64_t address)
{
	struct space *space = own();
	struct reservation **link = NULL;

	pthread_mutex_lock(&space->lock);
	for (struct region *region = &space->home; region && !link; region = region->next)
		link = find_exactly(region, room, address);
	if (link)
		put(reservation, link, address);
	pthread_mutex_unlock(&space->lock);
	return link;
}

static bool place(struct reservation *reservation, uint64_t room, uint64_t alignment)
{
	struct space *space = own();
	struct reservation **link = NULL;
	uint64_t at = 0;

	pthread_mutex_lock(&space->lock);
	for (struct region *region = &space->home; region && !link; region = region->next)
		link = find_gap(region, room, alignment, &at);
	if (link)
		put(reservation, link, at);
	pthread_mutex_unlock(&space->lock);
	return link;
}

static void add_region(struct region *region)
{
	struct space *space = own();

	pthread_mutex_lock(&space->lock);
	region->next = space->home.next;
	space->home.next = region;
	atomic_fetch_add_explicit(&space->further, 1, memory_order_relaxed);
	pthread_mutex_unlock(&space->lock);
}

/* ---- the service ---- */

/* The end of the region that holds an address; 0: none. */
static uint64_t end_of_own(uint64_t address)
{
	struct space *space = own();
	uint64_t end = 0;

	pthread_mutex_lock(&space->lock);
	for (const struct region *region = space->home.next; region && !end; region = region->next)
		if (address - region->base < region->bytes)
			end = region->base + region->bytes;
	pthread_mutex_unlock(&space->lock);
	return end;
}

/* Asks the service for a window that is free in this process as well. */
static CUresult ask(const struct wire_window *wish, struct region *region)
{
	struct wire_message request = {.type = WIRE_RESERVE_WINDOW, .window = *wish};
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS && answer->message.reply.values.count < 2)
		r = CUDA_ERROR_UNKNOWN;
	if (r == CUDA_SUCCESS) {
		region->base = answer->message.reply.values.at[0];
		region->bytes = answer->message.reply.values.at[1];
	}
	control_answer_free(answer);
	return r;
}

static CUresult give_back(const struct region *region)
{
	struct wire_message request = {
		.type = WIRE_RELEASE_WINDOW, .window = {.address = region->base, .bytes = region->bytes}};
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? control_call(&request, answer) : CUDA_ERROR_OUT_OF_MEMORY;

	control_answer_free(answer);
	return r;
}

/* Under `growing`. @at: exactly there, or 0 */
static CUresult grow(uint64_t bytes, uint64_t alignment, uint64_t at)
{
	struct region *region = calloc(1, sizeof(*region));
	uint64_t words[WINDOW_WORDS];
	struct wire_window wish = {.address = at,
		.bytes = bytes > SHARED_BYTES || at ? bytes : SHARED_BYTES,
		.alignment = alignment,
		.free_windows = {words, WINDOW_WORDS}};
	CUresult r = region ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (int i = 0; r == CUDA_SUCCESS && i < TRIES; ++i) {
		connect_look(end_of_own, words);
		r = ask(&wish, region);
		if (r != CUDA_SUCCESS)
			break;
		if (connect_reserve(region->base, region->bytes) == 0) {
			add_region(region);
			return CUDA_SUCCESS;
		}
		/* Another mapping was faster: the next look sees these addresses as taken. */
		r = give_back(region);
	}
	free(region);
	return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
}

/* Releases an empty region that is out of the list. */
static CUresult end_region(struct region *region)
{
	CUresult r = give_back(region);

	if (r == CUDA_SUCCESS) {
		munmap((void *)(uintptr_t)region->base, region->bytes);
		free(region);
	} else {
		add_region(region);
	}
	return r;
}

/* ---- reservations ---- */

/* Under `growing`. Makes a region exactly there, unless a part of it belongs to a region
 * already. */
static void grow_there(uint64_t bytes, uint64_t hint)
{
	struct space *space = own();
	uint64_t end = hint + bytes;
	bool is_own = false;

	pthread_mutex_lock(&space->lock);
	for (const struct region *region = &space->home; region && !is_own; region = region->next)
		is_own = hint < region->base + region->bytes && region->base < end;
	pthread_mutex_unlock(&space->lock);
	if (!is_own && hint >= WINDOW_BASE && end > hint && end <= WINDOW_BASE + WINDOWS * WINDOW_BYTES)
		grow(bytes, 0, hint);
}

static CUresult find_room(struct reservation *reservation, uint64_t room, uint64_t alignment, uint64_t hint)
{
	CUresult r = CUDA_SUCCESS;

	if (hint && hint % alignment == 0) {
		if (place_exactly(reservation, room, hint))
			return CUDA_SUCCESS;
		grow_there(room, hint);
		if (place_exactly(reservation, room, hint))
			return CUDA_SUCCESS;
	}
	/* Another thread may take the new addresses. */
	while (r == CUDA_SUCCESS && !place(reservation, room, alignment))
		r = grow(room, alignment, 0);
	return r;
}

CUresult space_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t *ret_address)
{
	struct space *space = own();
	const uint64_t all = WINDOWS * WINDOW_BYTES;
	struct reservation *reservation;
	CUresult r = CUDA_SUCCESS;
	uint64_t room;

	if (bytes > all || alignment > all)
		return CUDA_ERROR_OUT_OF_MEMORY;
	room = round_up(bytes, SPACE_GRAIN);
	if (alignment < SPACE_GRAIN)
		alignment = SPACE_GRAIN;
	reservation = calloc(1, sizeof(*reservation));
	if (!reservation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	reservation->bytes = bytes;
	if (hint || !place(reservation, room, alignment)) {
		pthread_mutex_lock(&space->growing);
		r = find_room(reservation, room, alignment, hint);
		pthread_mutex_unlock(&space->growing);
	}
	if (r == CUDA_SUCCESS)
		*ret_address = reservation->address;
	else
		free(reservation);
	return r;
}

CUresult space_reserve_host(uint64_t bytes, uint64_t alignment, uint64_t *ret_address)
{
	struct space *space = own();
	struct reservation *reservation;
	uint64_t before = alignment > SPACE_GRAIN ? alignment : 0, at;

	if (bytes > space->host.bytes || alignment > space->host.bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	reservation = calloc(1, sizeof(*reservation));
	if (!reservation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	reservation->bytes = bytes;
	reservation->chunk = host_reserve(round_up(bytes, SPACE_GRAIN) + before, &at);
	if (!reservation->chunk) {
		free(reservation);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&space->lock);
	put(reservation, &space->host.first, before ? round_up(at, alignment) : at);
	*ret_address = reservation->address;
	pthread_mutex_unlock(&space->lock);
	return CUDA_SUCCESS;
}

/* Under the lock. Return: the link to the reservation, as it was made; NULL: there is none */
static struct reservation **find_reservation(struct region *region, uint64_t address, uint64_t bytes)
{
	for (struct reservation **link = &region->first; *link; link = &(*link)->next)
		if ((*link)->address == address && (*link)->bytes == bytes)
			return link;
	return NULL;
}

CUresult space_free(uint64_t address, uint64_t bytes)
{
	struct space *space = own();
	struct reservation *found = NULL, **link;
	struct region *empty = NULL, **at = NULL;

	pthread_mutex_lock(&space->lock);
	link = find_reservation(&space->host, address, bytes);
	if (link) {
		found = *link;
		*link = found->next;
	}
	for (struct region *region = &space->home; region && !found; region = region->next) {
		link = address - region->base < region->bytes ? find_reservation(region, address, bytes)
							      : NULL;
		if (link) {
			found = *link;
			*link = found->next;
			empty = region != &space->home && !region->first ? region : NULL;
		}
	}
	if (empty) {
		for (at = &space->home.next; *at != empty; at = &(*at)->next)
			continue;
		*at = empty->next;
		atomic_fetch_sub_explicit(&space->further, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&space->lock);
	if (found && found->chunk)
		host_unreserve(found->chunk);
	free(found);
	if (empty)
		end_region(empty);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Under the lock. */
static bool holds(const struct region *region, uint64_t address, uint64_t bytes)
{
	bool is = false;

	if (address - region->base >= region->bytes)
		return false;
	for (const struct reservation *one = region->first; one && !is; one = one->next)
		is = address >= one->address && address - one->address < one->bytes &&
		     bytes <= one->bytes - (address - one->address);
	return is;
}

static bool is_reserved(struct space *space, uint64_t address, uint64_t bytes)
{
	bool is;

	pthread_mutex_lock(&space->lock);
	is = holds(&space->host, address, bytes);
	for (const struct region *region = &space->home; region && !is; region = region->next)
		is = holds(region, address, bytes);
	pthread_mutex_unlock(&space->lock);
	return is;
}

struct session *space_owner(uint64_t address, uint64_t bytes)
{
	SESSION_FOREACH (session)
		if (is_reserved(&session->space, address, bytes))
			return session;
	return NULL;
}

bool space_window(struct session *session, uint64_t address, struct peer_window *ret_window)
{
	struct space *space = &session->space;
	const struct connection *c = &session->connection;
	bool is_found = address - c->window_base < c->device_bytes;

	*ret_window = (struct peer_window){.base = c->window_base, .bytes = c->device_bytes};
	if (!is_found && address - space->host.base < space->host.bytes) {
		*ret_window = (struct peer_window){space->host.base, space->host.bytes, true};
		is_found = true;
	}
	pthread_mutex_lock(&space->lock);
	for (const struct region *region = space->home.next; region && !is_found; region = region->next) {
		*ret_window = (struct peer_window){.base = region->base, .bytes = region->bytes};
		is_found = address - region->base < region->bytes;
	}
	pthread_mutex_unlock(&space->lock);
	return is_found;
}

bool space_is_host(uint64_t address)
{
	SESSION_FOREACH (session)
		if (address - session->space.host.base < session->space.host.bytes)
			return true;
	return false;
}

bool space_is_window(uint64_t address)
{
	SESSION_FOREACH (session) {
		SESSION_SCOPE(session);
		if (address - session->connection.window_base < WINDOW_BYTES ||
			(atomic_load_explicit(&session->space.further, memory_order_relaxed) &&
				end_of_own(address)))
			return true;
	}
	return false;
}
