// See stash.h.

#include "server/standby/stash.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/guarantee.h"
#include "server/session/holdings.h"
#include "server/session/reclaim.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/standby/piece.h"
#include "server/standby/swap_inside.h"
#include "server/worker/worker.h"

/* Memory that the keeper makes at a time, and that goes back as a whole. */
#define SLAB_BYTES (UINT64_C(1) << 30)
/* Free memory of the device that stays free: the driver takes some now and then. */
#define LEFT_BYTES GUARANTEE_EXECUTOR_BYTES
/* Time until memory that is given back should be free. */
#define HOPE_US UINT64_C(1000000)

#define LOST_TEXT                                                                                            \
	"its copy was not in the files yet when somebody else needed the device memory that it was in; "     \
	"try again"
#define GONE_TEXT "its executor is being replaced"

enum stash_state {
	STASH_MAKES,
	STASH_TAKES,
	STASH_LOST, /* given back, and the user does not know */
	STASH_STORES,
	STASH_ENDS, /* for good: gone behind the last answer */
	STASH_GONE, /* the user does not know */
};

struct slab {
	struct chunk *chunk; /* NULL: it has gone back */
	uint64_t bytes;
	uint64_t unstored; /* in STORES: bytes that the files lack */
	bool is_mapped;	   /* the executor's free memory is without it */
};

/* A request's part of the copy. */
struct part {
	uint64_t place, bytes;
};

struct stash {
	struct daemon *daemon;
	enum stash_state state;
	uint32_t domain, worker; /* numbers: whose the memory is mapped */
	uint64_t address;	 /* WINDOW_NONE: none yet */
	bool is_reserved;	 /* there, by the executor */
	uint64_t wished, bytes;	 /* to be made; mapped, from the start on */
	struct slab *slabs;	 /* as many as there are wished */
	uint32_t slab_count;
	unsigned pending;  /* answers to come, */
	unsigned carrying; /* and of CarryStash alone */
	struct shared_fd *files[KEPT_SWAP_FILES];
	struct part *parts; /* what is to be stored */
	uint32_t part_count, next;
	bool is_ready;	 /* there is what there will be */
	bool is_dropped; /* by the user */
	int32_t code;	 /* for stash_is_gone() */
	const char *text;
};

/* An answer to come. */
struct stash_ticket {
	struct stash *stash;
	struct slab *slab;   /* MapStash */
	struct chunk *chunk; /* UnmapStash: a reference */
	struct part part;    /* CarryStash */
};

/* Return: NULL: it has ended */
static struct worker *find_worker(const struct stash *stash)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &stash->daemon->crew.workers, crew_link)
		if (worker->number == stash->worker)
			return worker;
	return NULL;
}

static void ask(struct stash *stash, struct worker *worker, struct wire_message *message,
	struct shared_fd *const *fd, worker_reply_fn *reply, const struct stash_ticket *what)
{
	struct stash_ticket *ticket = malloc(sizeof(*ticket));

	log_bug_on(!ticket);
	*ticket = *what;
	ticket->stash = stash;
	stash->pending++;
	worker_request(worker, message, fd, fd ? 1 : 0, reply, ticket);
}

/* Call first for each answer. Return: the ticket's stash and fields */
static struct stash_ticket take(void *context)
{
	struct stash_ticket *ticket = context, taken = *ticket;

	free(ticket);
	taken.stash->pending--;
	return taken;
}

static bool is_good(const struct wire_reply *reply)
{
	return reply && !reply->code;
}

/*
 * The end
 */

static void stash_free(struct stash *stash)
{
	free(stash->slabs);
	free(stash->parts);
	free(stash);
}

static void go(struct stash *stash)
{
	struct daemon *daemon = stash->daemon;
	struct domain *domain = daemon_find_domain(daemon, stash->domain);

	if (domain)
		window_give(&domain->windows, stash->address);
	daemon->stash = NULL;
	daemon->stash_worker = 0;
	for (unsigned i = 0; i < KEPT_SWAP_FILES; i++)
		shared_fd_unref(stash->files[i]);
	stash->state = STASH_GONE;
	if (stash->is_dropped)
		stash_free(stash);
	else
		due_daemon(daemon, DAEMON_DUE_DEPARTURE);
}

static void on_unmapped(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet);

static void release(struct stash *stash, struct slab *slab)
{
	struct worker *worker = find_worker(stash);
	struct wire_message message = {.type = WIRE_UNMAP_STASH};
	struct chunk *chunk = slab->chunk;

	slab->chunk = NULL;
	if (!chunk)
		return;
	message.range.address = stash->address + (uint64_t)(slab - stash->slabs) * SLAB_BYTES;
	message.range.bytes = slab->bytes;
	if (worker)
		ask(stash, worker, &message, NULL, on_unmapped, &(struct stash_ticket){.chunk = chunk});
	else
		chunk_unref(chunk);
}

static void release_all(struct stash *stash)
{
	stash->bytes = 0;
	for (uint32_t i = 0; i < stash->slab_count; i++)
		release(stash, &stash->slabs[i]);
	stash->daemon->stashed_us = timer_now_us();
}

/* Behind all parts. */
static void give_addresses_back(struct stash *stash)
{
	struct worker *worker = find_worker(stash);
	struct wire_message message = {.type = WIRE_UNMAP_STASH};

	stash->is_reserved = false;
	if (worker)
		ask(stash, worker, &message, NULL, on_unmapped, &(struct stash_ticket){0});
}

/* Call last for each answer: of a stash that has ended, the last answer is the end. */
static void look(struct stash *stash)
{
	if (stash->state != STASH_ENDS || stash->carrying)
		return;
	release_all(stash);
	if (stash->is_reserved)
		give_addresses_back(stash);
	if (!stash->pending)
		go(stash);
}

static void on_unmapped(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct stash_ticket ticket = take(context);

	(void)worker;
	(void)reply;
	(void)packet;
	chunk_unref(ticket.chunk);
	look(ticket.stash);
}

/* An answer of the executor or the keeper follows, or there is none to come. */
static void end(struct stash *stash, int32_t code, const char *text)
{
	stash->state = STASH_ENDS;
	stash->code = code;
	stash->text = text;
}

/*
 * The memory
 */

static void made(struct stash *stash)
{
	if (stash->state == STASH_MAKES)
		stash->state = STASH_TAKES;
	if (stash->state == STASH_LOST)
		release_all(stash);
	stash->is_ready = true;
	due_daemon(stash->daemon, DAEMON_DUE_DEPARTURE);
	look(stash);
}

static void make_next(struct stash *stash);

static void on_mapped(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct stash_ticket ticket = take(context);
	struct stash *stash = ticket.stash;

	(void)worker;
	(void)packet;
	if (is_good(reply)) {
		stash->bytes += ticket.slab->bytes;
		ticket.slab->is_mapped = true;
		make_next(stash);
	} else {
		/* Nobody has it mapped. */
		ticket.slab->chunk = chunk_unref(ticket.slab->chunk);
		made(stash);
	}
}

static void on_made(
	void *context, struct worker *keeper, const struct wire_reply *reply, struct packet *packet)
{
	struct stash_ticket ticket = take(context);
	struct stash *stash = ticket.stash;
	struct slab *slab = ticket.slab;
	struct worker *worker = find_worker(stash);
	struct wire_message message = {.type = WIRE_MAP_STASH};

	(void)keeper;
	if (is_good(reply) && reply->values.count)
		slab->chunk = chunk_new(stash->daemon, reply->values.at[0], packet_take_fd(packet, 0));
	if (slab->chunk)
		chunk_doom(slab->chunk);
	if (slab->chunk && worker && stash->state == STASH_MAKES) {
		message.range.address = stash->address + stash->bytes;
		message.range.bytes = slab->bytes;
		ask(stash, worker, &message, &slab->chunk->fd, on_mapped,
			&(struct stash_ticket){.slab = slab});
		return;
	}
	slab->chunk = chunk_unref(slab->chunk);
	made(stash);
}

static void make_next(struct stash *stash)
{
	struct worker *keeper = stash->daemon->keeper;
	uint64_t left = stash->wished - stash->bytes;
	struct wire_message message = {.type = WIRE_CREATE_CHUNK};
	struct slab *slab;

	if (stash->state != STASH_MAKES || !left || !keeper || keeper->state != WORKER_WARM) {
		made(stash);
		return;
	}
	slab = &stash->slabs[stash->slab_count++];
	slab->bytes = message.chunk.bytes = left < SLAB_BYTES ? left : SLAB_BYTES;
	ask(stash, keeper, &message, NULL, on_made, &(struct stash_ticket){.slab = slab});
}

static void on_reserved(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct stash *stash = take(context).stash;

	(void)worker;
	(void)packet;
	stash->is_reserved = is_good(reply);
	if (!stash->is_reserved)
		stash->wished = 0;
	make_next(stash);
}

static void reserve(struct stash *stash)
{
	struct worker *worker = find_worker(stash);
	struct wire_message message = {.type = WIRE_MAP_STASH};

	message.range.address = stash->address;
	message.range.bytes = stash->wished;
	if (worker)
		ask(stash, worker, &message, NULL, on_reserved, &(struct stash_ticket){0});
	else
		made(stash);
}

/* Anywhere: what a process may have there shows when the executor reserves it. */
static uint64_t take_window(struct domain *domain, uint64_t bytes)
{
	uint64_t all[WINDOW_COUNT / 64];
	const struct wire_window wish = {
		.bytes = bytes, .free_windows = {.at = all, .count = WINDOW_COUNT / 64}};

	memset(all, 0xff, sizeof(all));
	return window_take_further(&domain->windows, &wish);
}

static uint64_t least(uint64_t left, uint64_t right)
{
	return left < right ? left : right;
}

static void on_free_memory(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct stash *stash = take(context).stash;
	struct domain *domain = daemon_find_domain(stash->daemon, stash->domain);
	uint64_t left = is_good(reply) && reply->values.count ? reply->values.at[0] : 0;

	(void)worker;
	(void)packet;
	left = left > LEFT_BYTES ? left - LEFT_BYTES : 0;
	stash->wished = least(stash->wished, left) & ~(BACKEND_CHUNK_GRANULE - 1);
	if (stash->state == STASH_MAKES && stash->wished && domain)
		stash->address = take_window(domain, stash->wished);
	if (stash->address == WINDOW_NONE) {
		made(stash);
		return;
	}
	stash->slabs = calloc(stash->wished / SLAB_BYTES + 1, sizeof(*stash->slabs));
	log_bug_on(!stash->slabs);
	reserve(stash);
}

/* Return: NULL: not all of them have the same executor, which serves */
static struct worker *executor_of(const struct swap_group *members)
{
	const struct domain *domain = members->at[0]->domain;

	for (uint32_t i = 0; i < members->count; i++)
		if (members->at[i]->domain != domain || members->at[i]->memory != SESSION_MEMORY_HERE)
			return NULL;
	return domain_serving(domain);
}

static uint64_t bytes_of(const struct swap_group *members)
{
	const struct holdings **sessions = calloc(members->count, sizeof(*sessions));
	struct pieces pieces;
	uint64_t bytes;

	log_bug_on(!sessions);
	for (uint32_t i = 0; i < members->count; i++)
		sessions[i] = &members->at[i]->holdings;
	pieces_init(&pieces, sessions, members->count);
	bytes = pieces.bytes;
	pieces_deinit(&pieces);
	free(sessions);
	return bytes;
}

struct stash *stash_begin(const struct swap_group *members)
{
	struct daemon *daemon = members->at[0]->daemon;
	struct worker *worker = executor_of(members);
	uint64_t wished = least(bytes_of(members), guarantee_spare(daemon));
	struct wire_message message = {.type = WIRE_QUERY_MEMORY, .session = members->at[0]->number};
	struct stash *stash;

	if (daemon->stash || !worker || !wished || !daemon_offers_device(daemon))
		return NULL;
	stash = calloc(1, sizeof(*stash));
	log_bug_on(!stash);
	stash->daemon = daemon;
	stash->domain = worker->domain->number;
	stash->worker = worker->number;
	stash->wished = wished;
	daemon->stash = stash;
	daemon->stash_worker = worker->number;
	ask(stash, worker, &message, NULL, on_free_memory, &(struct stash_ticket){0});
	return stash;
}

struct stash *stash_drop(struct stash *stash)
{
	if (stash && stash->state == STASH_GONE) {
		stash_free(stash);
	} else if (stash) {
		stash->is_dropped = true;
		end(stash, CUDA_SUCCESS, "");
		look(stash);
	}
	return NULL;
}

bool stash_is_ready(const struct stash *stash)
{
	return stash->is_ready;
}

bool stash_is_gone(const struct stash *stash, int32_t *ret_code, const char **ret_text)
{
	if (!stash || stash->state != STASH_GONE)
		return false;
	*ret_code = stash->code;
	*ret_text = stash->text;
	return true;
}

/*
 * The copy
 */

bool stash_has_room(const struct stash *stash, const struct worker *executor, uint64_t place, uint64_t bytes)
{
	return stash && stash->state == STASH_TAKES && executor && executor->number == stash->worker &&
	       place <= stash->bytes && bytes <= stash->bytes - place;
}

uint64_t stash_address(const struct stash *stash, uint64_t place)
{
	return stash->address + place;
}

bool stash_is_lost(const struct stash *stash)
{
	return stash && (stash->state == STASH_LOST || (stash->state >= STASH_ENDS && stash->code));
}

bool stash_is_storing(const struct stash *stash)
{
	return stash && stash->state >= STASH_STORES;
}

/* Adds to the bytes of slabs that the files lack, or takes away from them. */
static void count_unstored(struct stash *stash, const struct part *part, bool stored)
{
	for (uint64_t at = part->place, end = at + part->bytes, bytes; at < end; at += bytes) {
		struct slab *slab = &stash->slabs[at / SLAB_BYTES];

		bytes = least(end - at, SLAB_BYTES - at % SLAB_BYTES);
		slab->unstored += stored ? -bytes : bytes;
		if (stored && !slab->unstored)
			release(stash, slab);
	}
}

static void feed(struct stash *stash);

static void on_stored(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct stash_ticket ticket = take(context);
	struct stash *stash = ticket.stash;

	(void)worker;
	(void)packet;
	stash->carrying--;
	if (stash->state == STASH_STORES && is_good(reply))
		count_unstored(stash, &ticket.part, true);
	else if (stash->state == STASH_STORES)
		end(stash, reply ? reply->code : CUDA_ERROR_NOT_READY,
			reply ? "its device memory could not be stored: there may be no room in host memory, "
				"or "
				"in swap_directory"
			      : GONE_TEXT);
	feed(stash);
}

static void carry(struct stash *stash, struct worker *worker, const struct part *part)
{
	struct wire_message message = {.type = WIRE_CARRY_STASH,
		.carry = {.address = stash->address + part->place,
			.bytes = part->bytes,
			.offset = part->place}};

	stash->carrying++;
	ask(stash, worker, &message, swap_file_at(stash->files, part->place), on_stored,
		&(struct stash_ticket){.part = *part});
}

static void feed(struct stash *stash)
{
	struct worker *worker = find_worker(stash);

	if (stash->state == STASH_STORES && !worker)
		end(stash, CUDA_ERROR_NOT_READY, GONE_TEXT);
	while (stash->state == STASH_STORES && stash->carrying < SWAP_REQUESTS &&
		stash->next < stash->part_count)
		carry(stash, worker, &stash->parts[stash->next++]);
	if (stash->state == STASH_STORES && !stash->carrying)
		end(stash, CUDA_SUCCESS, "");
	look(stash);
}

/* The requests are those that fill the files without a stash. */
static uint32_t list_parts(const struct stash *stash, const struct pieces *pieces, struct part *ret_parts)
{
	const struct worker *worker = find_worker(stash);
	uint32_t count = 0;

	for (uint32_t i = 0; i < pieces->count; i++)
		for (uint64_t at = 0, bytes; at < pieces->at[i].bytes; at += bytes) {
			const uint64_t place = pieces->at[i].chunk->place + at;

			bytes = least(pieces->at[i].bytes - at, SWAP_CARRY_BYTES);
			if (!stash_has_room(stash, worker, place, bytes))
				continue;
			if (ret_parts)
				ret_parts[count] = (struct part){place, bytes};
			count++;
		}
	return count;
}

void stash_store(struct stash *stash, const struct pieces *pieces, struct shared_fd *const *files)
{
	stash->parts = calloc(list_parts(stash, pieces, NULL) + 1, sizeof(*stash->parts));
	log_bug_on(!stash->parts);
	stash->part_count = list_parts(stash, pieces, stash->parts);
	for (unsigned i = 0; i < KEPT_SWAP_FILES; i++)
		stash->files[i] = shared_fd_ref(files[i]);
	for (uint32_t i = 0; i < stash->part_count; i++)
		count_unstored(stash, &stash->parts[i], false);
	stash->state = STASH_STORES;
	feed(stash);
}

/*
 * Others
 */

bool stash_give_back(struct daemon *daemon)
{
	struct stash *stash = daemon->stash;

	if (stash && stash->state <= STASH_TAKES) {
		if (stash->state == STASH_TAKES)
			release_all(stash);
		stash->state = STASH_LOST;
	} else if (stash && stash->state == STASH_STORES) {
		end(stash, CUDA_ERROR_OUT_OF_MEMORY, LOST_TEXT);
	}
	return stash || (reclaim_expects(daemon) && timer_now_us() < daemon->stashed_us + HOPE_US);
}

void stash_give_way(struct daemon *daemon)
{
	const struct stash *stash = daemon->stash;
	uint64_t bytes = stash && stash->state == STASH_MAKES ? stash->wished : stash_bytes(daemon);

	if (bytes > (bytes ? guarantee_spare(daemon) : 0))
		stash_give_back(daemon);
}

uint64_t stash_bytes(const struct daemon *daemon)
{
	const struct stash *stash = daemon->stash;
	uint64_t bytes = 0;

	for (uint32_t i = 0; stash && i < stash->slab_count; i++)
		bytes += stash->slabs[i].chunk && stash->slabs[i].is_mapped ? stash->slabs[i].bytes : 0;
	return bytes;
}

void stash_adopt(struct daemon *daemon)
{
	struct wire_message message = {.type = WIRE_UNMAP_STASH};
	struct worker *worker;

	TAILQ_FOREACH (worker, &daemon->crew.workers, crew_link)
		if (worker->number == daemon->stash_worker)
			worker_request(worker, &message, NULL, 0, worker_ignore_reply, NULL);
	daemon->stash_worker = 0;
}
