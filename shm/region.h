// A session's two memory regions: their size, their creation, their mapping by each side. The
// daemon makes regions and publishes their shape; client and executors map these once, and then use
// only the pointers and sizes of their private struct shm_view. No function here keeps state; a
// view belongs to a single owner.

#ifndef FRMPS_SHM_REGION_H
#define FRMPS_SHM_REGION_H

#include <stdint.h>

#include "protocol/wire.h"
#include "shm/layout.h"

/* Outcomes. */
#define SHM_E_SHAPE   1 /* the shape or a region breaks the rules of shm_shape_check() */
#define SHM_E_NOSPACE 2 /* no memory for the regions: memfd limit, shared memory full */

enum shm_side {
	SHM_SIDE_CLIENT, /* client region writable, server region read-only */
	SHM_SIDE_SERVER, /* both writable (the device writes the arena through the executor's mapping) */
};

/* A mapped session. */
struct shm_view {
	struct wire_shape shape;
	struct shm_client_header *client;
	uint8_t *ring;
	uint8_t *arena;
	struct shm_server_header *server;
	struct shm_client_more *more;	 /* NULL: the service is older */
	struct shm_stream_state *states; /* shm_view_slots() */
	struct shm_timeline *timelines;	 /* the first pieces of SHM_TIMELINES, and what is behind them */
	struct shm_time *times;		 /* shm_view_events() */
	struct shm_block *blocks;	 /* shape.journal_blocks; NULL on the client's side */
};

#define SHM_VIEW_NULL ((struct shm_view){0})

/** The shape for given ring and arena sizes (powers of two, at least 64 KiB); @blocks journal
 * blocks. */
void shm_shape_init(struct wire_shape *shape, uint64_t ring_bytes, uint64_t arena_bytes, uint32_t blocks);

/**
 * Checks a shape that came over a socket: page-aligned, in order, disjoint, ring a power of two
 * that holds eight of the largest records, everything below 64 GiB. Return: 0 or SHM_E_SHAPE.
 */
int shm_shape_check(const struct wire_shape *shape);

/**
 * Makes both regions, zeroed, sealed, with their headers written and the journal empty: the
 * client's cannot be resized, the server's can grow.
 * @ret_client_fd, @ret_server_fd: the caller closes these
 * Return: 0, SHM_E_SHAPE, SHM_E_NOSPACE or -errno.
 */
int shm_region_new(const struct wire_shape *shape, int *ret_client_fd, int *ret_server_fd);

/**
 * A read-only descriptor of the server region for the client. Also clears the memfd's mode, so that
 * the client cannot open the file again for writing through /proc unless it is root or runs as the
 * service's own user.
 */
int shm_region_readonly(int server_fd, int *ret_fd);

/**
 * Maps a session.
 * Checks the shape, the files' sizes and the headers. The descriptors are not consumed.
 * Return: 0, SHM_E_SHAPE or -errno.
 */
int shm_view_map(struct shm_view *view, const struct wire_shape *shape, int client_fd, int server_fd,
	enum shm_side side);

/** Unmaps; allowed on SHM_VIEW_NULL and twice. */
void shm_view_unmap(struct shm_view *view);

/**
 * Offset of a graph's place in the server region, which may end before the place.
 * 0: an invalid id, or more bytes than a place has
 */
uint64_t shm_graph_place(const struct wire_shape *shape, uint32_t graph, uint64_t bytes);

/** Streams that there is room for. */
static inline uint32_t shm_view_slots(const struct shm_view *view)
{
	return view->more ? SHM_STREAMS : SHM_PIECE;
}

/** Events that there is room for: an older service's region has fewer. */
static inline uint32_t shm_view_events(const struct shm_view *view)
{
	uint64_t room = (view->shape.journal_offset - view->shape.times_offset) / sizeof(struct shm_time);

	return room < SHM_EVENTS ? (uint32_t)room : SHM_EVENTS;
}

/** Slots from here on never had a command. [any thread, server side] */
static inline uint32_t shm_view_used(const struct shm_view *view)
{
	uint32_t used = word_acquire(&view->server->streams);

	return used < SHM_STREAMS ? used : SHM_STREAMS;
}

/** The client's words of a stream. @slot: below shm_view_slots() */
static inline struct shm_host_entry *shm_view_host(const struct shm_view *view, uint32_t slot)
{
	return slot < SHM_PIECE ? &view->client->host[slot] : &view->more->host[slot - SHM_PIECE];
}

static inline struct shm_stream_entry *shm_view_entry(const struct shm_view *view, uint32_t slot)
{
	return slot < SHM_PIECE ? &view->client->streams[slot] : &view->more->streams[slot - SHM_PIECE];
}

/** The first piece of the timeline of a generation. */
static inline struct shm_timeline *shm_view_timeline(const struct shm_view *view, uint32_t generation)
{
	return &view->timelines[generation % SHM_TIMELINES];
}

/**
 * Highest command of a stream known done, according to the serving generation. [any thread, either
 * side]
 */
static inline uint64_t shm_view_done(const struct shm_view *view, uint32_t slot)
{
	uint32_t generation = word_acquire(&view->server->generation);

	return word_acquire(&shm_timeline_at(shm_view_timeline(view, generation), slot)->done);
}

/**
 * As shm_view_done(), for decisions of the service. Kernels can write to a timeline, too: a word
 * beyond the latest mark is no mark, and counts as that mark. [any thread, server side]
 */
static inline uint64_t shm_view_known_done(const struct shm_view *view, uint32_t slot)
{
	/* In this order: an executor sets `marked` before the mark can arrive. */
	uint64_t done = shm_view_done(view, slot), marked = word_acquire(&view->states[slot].marked);

	return done < marked ? done : marked;
}

/**
 * True if commands are issued and not known done, according to the serving generation. [any thread,
 * server side]
 */
static inline bool shm_view_in_doubt(const struct shm_view *view)
{
	uint32_t used = shm_view_used(view);

	for (uint32_t slot = 0; slot < used; slot++)
		if (word_acquire(&view->states[slot].issued) > shm_view_known_done(view, slot))
			return true;
	return false;
}

/**
 * True if the session had work on the device at a sign of a fault, or so shortly before that this
 * work may have faulted. @sign_ns: time of the sign, in the clock of `active`. [any thread, server
 * side]
 */
static inline bool shm_view_had_work(const struct shm_view *view, uint64_t sign_ns)
{
	uint64_t active = word_acquire(&view->server->active);

	return (active && active + SHM_SIGN_NS > sign_ns) || shm_view_in_doubt(view);
}

#endif
