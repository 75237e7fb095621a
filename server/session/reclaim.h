// Device memory that is on its way back to the keeper, and the requests that wait for it: instead
// of telling a program that there is no memory, the daemon asks once more when some has come back.
// Whoever asks how much is free waits for what it has freed itself, for a while: its frees were
// answered by the active executor alone, and the memory is free when standbys and keeper have let
// go of it, too. There may always be something on its way, of somebody else, that is not enough: a
// request waits no longer than a session may take to close. Daemon, loop thread only; belongs to
// the daemon.

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

/* How long after a program has freed something it may wait to be told how much is free. */
#define RECLAIM_FREED_MS 200u

struct reclaim {
	TAILQ_HEAD(thirsty_list, request) thirsty; /* requests that wait for memory, or for a keeper */
	struct timer *timer;			   /* those that do not wait longer look again */
	struct timer *limit;			   /* the same for those that were refused memory */
	uint64_t latest;			   /* number of the one that came last */
	unsigned under_way;			   /* things that will give device memory back */
	uint64_t *syncing; /* of those that the holder has to let go of yet, who freed them; in their order */
	unsigned syncing_count, syncing_room;
	void (*advance)(struct request *request); /* makes one of those that waited once more */
};

/** @advance: makes a request that has waited once more */
void reclaim_init(struct daemon *daemon, void (*advance)(struct request *request));
void reclaim_deinit(struct daemon *daemon);

/** One thing more will give device memory back: a doomed chunk, a session that closes, an executor
 * that ends. */
void reclaim_begin(struct daemon *daemon);
/** The keeper has let go of a chunk: it has come back once the holder has, too. @freed_by: number
 * of the session that had given it back; 0: none */
void reclaim_released(struct daemon *daemon, uint64_t freed_by);
/** The holder has, of so many. */
void reclaim_synced(struct daemon *daemon, unsigned count);
/** A session gives a chunk back: its next question how much is free waits for that. */
void reclaim_note_freed(struct session *session, struct chunk *chunk);
/** It will not: undoes reclaim_begin(). */
void reclaim_cancel(struct daemon *daemon);
/** So many things have given it back. */
void reclaim_done(struct daemon *daemon, unsigned count);
/** Whether a request waits that was refused memory. */
bool reclaim_is_short(const struct daemon *daemon);
/** Whether anything is on its way. */
bool reclaim_expects(const struct daemon *daemon);

/** The request waits, behind those that do already. */
void reclaim_await(struct request *request);
/** The same, so many milliseconds or a little longer at most. */
void reclaim_await_for(struct request *request, uint64_t milliseconds);
/** Whoever waits looks again after so many milliseconds, or before. */
void reclaim_look_in(struct daemon *daemon, uint64_t milliseconds);
/** The keeper has no memory for the request, which waits if some is on its way. Return: whether it
 * waits. */
bool reclaim_hope(struct request *request);
/** Lets the request wait if its program has freed something a moment ago that may be on its way.
 * Return: whether it waits. */
bool reclaim_defer(struct request *request);
/** The request waits no longer; it need not have. */
void reclaim_forget(struct request *request);
/** Those that wait are made once more. */
void reclaim_retry(struct daemon *daemon);

#endif
