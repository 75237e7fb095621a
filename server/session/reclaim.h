// Device memory on its way back to the keeper, and the requests that wait for it: instead of
// answering that there is no memory, the daemon tries once more when some has come back. A program
// that asks for the free memory waits a while for memory that it has freed itself: the active
// executor alone answered the frees, and the memory is free only when standbys and keeper have
// released it, too. Memory of others may always be on its way, and never suffice: so a request
// waits no longer than a session may take to close. Daemon, loop thread only; belongs to the
// daemon.

#ifndef FRMPS_SERVER_SESSION_RECLAIM_H
#define FRMPS_SERVER_SESSION_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct chunk;
struct daemon;
struct request;
struct session;
struct timer;

/* A program that has freed memory so recently may wait for the answer to its question for free
 * memory. */
#define RECLAIM_FREED_MS 200u

struct reclaim {
	TAILQ_HEAD(waiting_list, request) waiting; /* requests that wait for memory, or for a keeper */
	/* for reclaim_defer(): then waiting requests are tried again */
	struct timer *timer;
	struct timer *limit; /* the same for reclaim_hope() */
	uint64_t latest;     /* number of the latest request */
	unsigned under_way;  /* things that will give device memory back */
	/* For chunks that the holder has not released yet: the session that freed each; in
	 * order. */
	uint64_t *syncing;
	unsigned syncing_count, syncing_room;
};

void reclaim_init(struct daemon *daemon);
void reclaim_deinit(struct daemon *daemon);

/** Announces one thing more that will give device memory back: a doomed chunk, a session that
 * closes. (An executor that ends announces itself: worker_await_memory().) */
void reclaim_begin(struct daemon *daemon);
/** The keeper has released a chunk: it has come back once the holder has released it, too.
 * @freed_by: number of the session that had freed the chunk; 0: none */
void reclaim_released(struct daemon *daemon, uint64_t freed_by);
/** The holder has released so many chunks. */
void reclaim_synced(struct daemon *daemon, unsigned count);
/** A session frees a chunk: the session's next question for free memory waits for that chunk. */
void reclaim_note_freed(struct session *session, struct chunk *chunk);
/** Undoes reclaim_begin(): no memory will come back. */
void reclaim_cancel(struct daemon *daemon);
/** So many announced things have given their memory back. */
void reclaim_done(struct daemon *daemon, unsigned count);
/** True if a request waits that was refused memory. */
bool reclaim_is_short(const struct daemon *daemon);
/** True if memory is on its way back. */
bool reclaim_expects(const struct daemon *daemon);

/** The request waits, behind those that do already. */
void reclaim_await(struct request *request);
/** The same, for so many milliseconds or a little longer at most. */
void reclaim_await_for(struct request *request, uint64_t milliseconds);
/** Tries waiting requests again after so many milliseconds, or before. */
void reclaim_look_in(struct daemon *daemon, uint64_t milliseconds);
/** The keeper has no memory for the request, which waits if some is on its way. Return: true if the
 * request waits. */
bool reclaim_hope(struct request *request);
/** Makes the request wait if its program has freed memory a moment ago that may be on its way.
 * Return: true if the request waits. */
bool reclaim_defer(struct request *request);
/** Removes the request from the waiting requests, if it is there. */
void reclaim_forget(struct request *request);
/** The request that has waited longest, if it waited already when request number `latest` began to
 * wait; NULL: none. */
struct request *reclaim_first(const struct daemon *daemon, uint64_t latest);

#endif
