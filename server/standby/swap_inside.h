// What the files of suspending share: the state of one session whose memory is not, or not all, on
// the device, requests about it, copies and unmapping, both ways. States and rules: swap.c. Daemon,
// loop thread only.

#ifndef FRMPS_SERVER_STANDBY_SWAP_INSIDE_H
#define FRMPS_SERVER_STANDBY_SWAP_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/log.h"
#include "server/standby/piece.h"
#include "server/standby/swap.h"
#include "server/worker/worker.h"

struct timer;

#define SWAP_MIB      (UINT64_C(1) << 20)
#define SWAP_HAS_WORK "it has work (suspend --now does not wait for a rest)"

/* What threads that copy spend their time with: host pages, the device, reading and writing files
 * (CarryMemory's answer). */
#define SWAP_TIMES 3u

/* Steps of RETURNS. */
enum swap_step { SWAP_QUERIES, SWAP_MAPS, SWAP_CARRIES };

struct swap;

/* LEAVES or RETURNS. */
struct swap_way {
	bool into; /* the device */
	/* All is copied. */
	void (*copied)(struct swap *swap);
	/* It cannot go on. */
	void (*failed)(struct swap *swap, int32_t code, const char *text);
};

struct swap {
	struct session *session;      /* NULL: nothing is to be done any more */
	unsigned refs;		      /* of the session, and of each answer to come */
	unsigned round;		      /* answers to an earlier one say nothing */
	unsigned pending;	      /* answers of this round to come */
	unsigned unmapping;	      /* answers of active executors that unmap, of any round */
	void (*again)(void *context); /* looks whether it can come back. @context: this */
	const struct swap_way *way;
	enum swap_step step;
	struct pieces pieces;
	uint32_t next;		/* piece, */
	uint64_t at;		/* and byte in it, that is next */
	bool wanted;		/* it is to come back, */
	bool is_awaiting_unmap; /* and would be on its way if that were over */
	bool is_awaiting_room;	/* that is being made for it */
	uint64_t wanted_us;	/* since when */
	uint64_t begun_us;
	uint64_t times[SWAP_TIMES]; /* that copying has taken since: of the threads together, ns */
	enum swap_manner manner;
	struct timer *retry;
	swap_done_fn *done;
	void *context;
};

/* An answer to come. */
struct ticket {
	struct swap *swap;
	unsigned round;
	struct piece *piece; /* CreateChunk */
	struct chunk *old;   /* UnmapMemory: a reference to what is being unmapped, or NULL */
};

/* Life (swap_work.c). @again: swap_on_retry() */
struct swap *swap_new(struct session *session, void (*again)(void *context));
struct swap *swap_unref(struct swap *swap);
/** The session has none any more. */
void swap_drop(struct swap *swap);
/** Answers to come find nothing to do. */
void swap_round(struct swap *swap);

/** Tells whoever asked, once. */
void swap_say(struct swap *swap, int32_t code, const char *text);
void swap_note(struct session *session, const char *what);
/** @where: where the memory is now */
void swap_note_moved(struct session *session, const char *where);

/** Asks a worker. What cannot be sent is trouble, and may end the round at once.
 * @piece: for the answer; may be NULL */
void swap_ask(struct swap *swap, struct worker *worker, struct wire_message *message,
	struct shared_fd *const *fd, worker_reply_fn *reply, struct piece *piece);
/** First of what is done with an answer. Return: whether it is one that is waited for */
bool swap_take(struct ticket *ticket);
/** Last of what is done with it. */
void swap_drop_ticket(struct ticket *ticket);
/** An answer that is no success; NULL: there is none. */
void swap_fail_by(struct swap *swap, const struct wire_reply *reply);

/** All that is done with an answer which says no more than whether it goes on. */
void swap_go_on(struct ticket *ticket, const struct wire_reply *reply, void (*next)(struct swap *swap));

/** How much more may be suspended, as far as is known, bytes. */
uint64_t swap_room(const struct daemon *daemon);
/** Makes the session's files, for so many bytes each. Return: NULL, or why they cannot be (static
 * text) */
const char *swap_make_files(struct session *session, uint64_t bytes);
/** Copies all of it on the way that it is on. */
void swap_copy(struct swap *swap);

/** Takes the chunks' memory out of them: it goes with swap_release_all(). */
void swap_empty_all(struct swap *swap);
/** Gives that back. Standbys have been told, and the session's record says that the chunks are
 * empty. The active executor unmaps it, or says that there is nothing. */
void swap_release_all(struct swap *swap);
void swap_unmap_message(
	const struct session *session, const struct holding *entry, struct wire_message *ret_message);

/** Its memory is on the device, as it was, or again: records it, and gives the file up. */
void swap_be_here(struct session *session);

/** Whether it has commands that are not given to the device (swap_out.c). */
bool swap_has_work(const struct session *session);
/** It stays on the device: LEAVES is over. */
void swap_stay(struct swap *swap, int32_t code, const char *text);

/** It is to come back. */
void swap_want(struct swap *swap);
/** Begins to bring it back if that is wanted and can begin now (swap_back.c). */
void swap_begin_return(struct session *session);
/** Whether a session makes room for others, or has done so a moment ago. */
bool swap_is_displacing(const struct daemon *daemon);
/** Others do not displace it for so long (swap_choose.c). */
void swap_stays(struct session *session, uint64_t least_us);
/** It is back, which took so long. */
void swap_note_return(struct session *session, uint64_t took_us);
/** Gives back what has come already: RETURNS is AWAY again. */
void swap_fall_back(struct swap *swap);
/** The same. @context: a swap */
void swap_on_retry(void *context);

#endif
