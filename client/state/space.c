// See space.h. Regions hold reservations in address order; the first gap that fits is taken. A
// region that was added is never removed, so the list is read without the lock.

#include "client/state/space.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/link/connect.h"
#include "client/link/control.h"
#include "client/state/log.h"
#include "shm/order.h"

/* A window that turns out to be taken in this process is not asked for again. */
#define TRIES 4

struct reservation {
	uint64_t address, bytes; /* as the program asked for */
	struct reservation *next;
};

struct region {
	uint64_t base, bytes;
	struct reservation *first; /* guarded by lock */
	_Atomic(struct region *) next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER; /* held while the service is asked for windows */
static struct region home;

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) & ~(unit - 1);
}

uint64_t space_bytes(void)
{
	return connection.device_bytes / 24 / SPACE_GRAIN * SPACE_GRAIN;
}

void space_start(void)
{
	/* The service has some addresses at the very end for itself: a quarter of this is more than
	 * it takes.
	 */
	uint64_t bytes = space_bytes();

	home.base = connection.window_base + connection.device_bytes - bytes;
	home.bytes = bytes / 4 * 3 / SPACE_GRAIN * SPACE_GRAIN;
}

/* A region's successor. Pairs with the release in add_region(). */
static struct region *next_of(struct region *region)
{
	return word_acquire(&region->next);
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

/* The link for a reservation at exactly this address. NULL: it is not free. */
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

static bool place(struct reservation *reservation, uint64_t room, uint64_t alignment, uint64_t hint)
{
	struct reservation **link = NULL;
	uint64_t at = hint;

	pthread_mutex_lock(&lock);
	if (hint && hint % alignment == 0)
		for (struct region *region = &home; region && !link; region = next_of(region))
			link = find_exactly(region, room, hint);
	for (struct region *region = &home; region && !link; region = next_of(region))
		link = find_gap(region, room, alignment, &at);
	if (link) {
		reservation->address = at;
		reservation->next = *link;
		*link = reservation;
	}
	pthread_mutex_unlock(&lock);
	return link;
}

static void add_region(struct region *region)
{
	struct region *last = &home;

	while (next_of(last))
		last = next_of(last);
	word_release(&last->next, region);
}

/* Windows of the service that are free here as well. */
static CUresult ask(uint64_t bytes, const uint64_t words[WINDOW_WORDS], struct region *region)
{
	struct wire_message request = {.type = WIRE_RESERVE_WINDOW,
		.window = {.bytes = bytes, .free_windows = {words, WINDOW_WORDS}}};
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

/* Under `growing`. */
static CUresult grow(uint64_t bytes)
{
	struct region *region = calloc(1, sizeof(*region));
	uint64_t words[WINDOW_WORDS];
	CUresult r = region ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (int i = 0; r == CUDA_SUCCESS && i < TRIES; ++i) {
		connect_look(words);
		r = ask(bytes, words, region);
		if (r != CUDA_SUCCESS)
			break;
		if (connect_reserve(region->base, region->bytes) == 0) {
			add_region(region);
			return CUDA_SUCCESS;
		}
		/* Somebody was faster: those addresses are lost, the next look sees them taken. */
	}
	free(region);
	return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
}

CUresult space_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t *ret_address)
{
	struct reservation *reservation;
	uint64_t room, wanted;
	CUresult r = CUDA_SUCCESS;

	if (bytes > WINDOWS * WINDOW_BYTES || alignment > WINDOWS * WINDOW_BYTES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	room = round_up(bytes, SPACE_GRAIN);
	if (alignment < SPACE_GRAIN)
		alignment = SPACE_GRAIN;
	reservation = calloc(1, sizeof(*reservation));
	if (!reservation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	reservation->bytes = bytes;
	if (!place(reservation, room, alignment, hint)) {
		pthread_mutex_lock(&growing);
		/* Windows begin at multiples of their size; somebody may have got some
		 * meanwhile. */
		wanted = round_up(alignment > WINDOW_BYTES ? room + alignment : room, WINDOW_BYTES);
		while (r == CUDA_SUCCESS && !place(reservation, room, alignment, hint))
			r = grow(wanted);
		pthread_mutex_unlock(&growing);
	}
	if (r == CUDA_SUCCESS)
		*ret_address = reservation->address;
	else
		free(reservation);
	return r;
}

CUresult space_free(uint64_t address, uint64_t bytes)
{
	struct reservation *found = NULL;

	pthread_mutex_lock(&lock);
	for (struct region *region = &home; region && !found; region = next_of(region))
		for (struct reservation **link = &region->first; *link; link = &(*link)->next) {
			if ((*link)->address != address || (*link)->bytes != bytes)
				continue;
			found = *link;
			*link = found->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	free(found);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool space_is_reserved(uint64_t address, uint64_t bytes)
{
	bool is = false;

	pthread_mutex_lock(&lock);
	for (struct region *region = &home; region && !is; region = next_of(region)) {
		if (address < region->base || address - region->base >= region->bytes)
			continue;
		for (struct reservation *one = region->first; one && !is; one = one->next)
			is = address >= one->address && address - one->address < one->bytes &&
			     bytes <= one->bytes - (address - one->address);
	}
	pthread_mutex_unlock(&lock);
	return is;
}

bool space_is_foreign(uint64_t address)
{
	for (struct region *region = next_of(&home); region; region = next_of(region))
		if (address - region->base < region->bytes)
			return true;
	return false;
}
