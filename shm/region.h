// A session's two memory regions: how large they are, how they are made, how each side maps them.
// The daemon makes regions and publishes their shape; client and executors map them once and from
// then on use only the pointers and sizes of their private struct shm_view. No function here keeps
// state; a view belongs to one owner.

#ifndef FRMPS_SHM_REGION_H
#define FRMPS_SHM_REGION_H

#include <stdint.h>

#include "protocol/wire.h"
#include "shm/layout.h"

/* Outcomes. */
#define SHM_E_SHAPE   1 /* the shape or a region does not fulfil the rules of shm_shape_check() */
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
	struct shm_time *times;		 /* SHM_EVENTS */
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
 * Makes both regions, zeroed, sealed against resizing, with their headers written and the journal
 * empty. @ret_client_fd, @ret_server_fd: the caller owns them
 * Return: 0, SHM_E_SHAPE, SHM_E_NOSPACE or -errno.
 */
int shm_region_new(const struct wire_shape *shape, int *ret_client_fd, int *ret_server_fd);

/**
 * A read-only descriptor of the server region for the client. The memfd's mode is taken away at the
 * same time, so that the client cannot open it again for writing through /proc unless it is root or
 * runs as the service's own user.
 */
int shm_region_readonly(int server_fd, int *ret_fd);

/**
 * Maps a session.
 * Checks the shape, the files' sizes and the headers. The descriptors are not consumed.
 * Return: 0, SHM_E_SHAPE or -errno.
 */
int shm_view_map(struct shm_view *view, const struct wire_shape *shape, int client_fd, int server_fd,
	enum shm_side side);

/** Unmaps; fine on SHM_VIEW_NULL and twice. */
void shm_view_unmap(struct shm_view *view);

/** Where the place of a graph begins in the server region. 0: there is none for that id, or none so
 * large. */
uint64_t shm_graph_place(const struct wire_shape *shape, uint32_t graph, uint64_t bytes);

/** Streams that there is room for. */
static inline uint32_t shm_view_slots(const struct shm_view *view)
{
	return view->more ? SHM_STREAMS : SHM_PIECE;
}

/** Slots from here on never had a command: the first piece at least. [any thread, server side] */
static inline uint32_t shm_view_used(const struct shm_view *view)
{
	uint32_t used = word_acquire(&view->server->streams);

	if (used <= SHM_PIECE)
		return SHM_PIECE;
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

/** Highest command of a stream known done, as the serving generation says. [any thread, either
 * side] */
static inline uint64_t shm_view_done(const struct shm_view *view, uint32_t slot)
{
	uint32_t generation = word_acquire(&view->server->generation);

	return word_acquire(&shm_timeline_at(shm_view_timeline(view, generation), slot)->done);
}

/**
 * The same for who decides something by it. Kernels can write to a timeline, too: a word beyond
 * what was marked is no mark, and says no more than the last one. [any thread, server side]
 */
static inline uint64_t shm_view_known_done(const struct shm_view *view, uint32_t slot)
{
	/* In this order: what is marked was noted before the mark can come. */
	uint64_t done = shm_view_done(view, slot), marked = word_acquire(&view->states[slot].marked);

	return done < marked ? done : marked;
}

/** Whether commands are issued and not known done, as the serving generation says. [any thread,
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

/** Whether the session had something on the device when a sign of a fault came, or so shortly
 * before that it may be what faulted. @sign_ns: when it came, of the clock of `active`. [any
 * thread, server side] */
static inline bool shm_view_had_work(const struct shm_view *view, uint64_t sign_ns)
{
	uint64_t active = word_acquire(&view->server->active);

	return (active && active + SHM_SIGN_NS > sign_ns) || shm_view_in_doubt(view);
}

#endif
