// Shared by the files of suspending: the state of sessions whose memory is not all on the device,
// requests about these sessions, copies and unmapping, both ways. States and rules: swap.c. Daemon,
// loop thread only.

#ifndef FRMPS_SERVER_STANDBY_SWAP_INSIDE_H
#define FRMPS_SERVER_STANDBY_SWAP_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/log.h"
#include "server/session/session.h"
#include "server/standby/piece.h"
#include "server/standby/swap.h"
#include "server/worker/worker.h"

struct timer;

TAILQ_HEAD(session_set, session);

#define SWAP_MIB (UINT64_C(1) << 20)
/* Most bytes of a request to copy to a file or back, and such requests in flight. */
#define SWAP_CARRY_BYTES    (UINT64_C(64) << 20)
#define SWAP_REQUESTS	    16u
#define SWAP_HAS_WORK	    "it has work (suspend --now does not wait for a rest)"
#define SWAP_DEVICE_DRAINED "the device is drained: its memory comes back with the device (frmpsctl refill)"

#define SWAP_HELD "a program that shares its device memory is suspended until it is resumed (frmpsctl status)"

/* Times of the copying threads: for host pages, for the device, for reading and writing files
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
	/* The way has failed. */
	void (*failed)(struct swap *swap, int32_t code, const char *text);
};

struct swap {
	struct daemon *daemon;
	/* The first is the session that was to go. Empty: nothing is left to do */
	struct session_set members;
	unsigned refs;		      /* of the members, and of each answer to come */
	unsigned round;		      /* answers to an earlier round are ignored */
	unsigned pending;	      /* answers of this round to come */
	unsigned unmapping;	      /* answers of active executors that unmap, of any round */
	void (*again)(void *context); /* tries to bring the memory back. @context: this */
	const struct swap_way *way;
	enum swap_step step;
	struct pieces pieces;
	uint32_t next;		/* piece, */
	uint64_t at;		/* and byte in it, to copy next */
	bool is_stashed;	/* some of it was copied into the stash */
	bool wanted;		/* the memory is to come back, */
	bool is_awaiting_unmap; /* and its return waits for the end of unmapping, */
	bool is_awaiting_room;	/* or for room that others make */
	uint64_t wanted_us;	/* since when */
	uint64_t begun_us;
	uint64_t times[SWAP_TIMES]; /* of copying since then: of all threads together, ns */
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
	/* UnmapMemory: a reference to the chunk that is being unmapped, or NULL */
	struct chunk *old;
};

/* Life (swap_work.c). @again: swap_on_retry() */
struct swap *swap_new(struct session *session, void (*again)(void *context));
struct swap *swap_unref(struct swap *swap);
/** Ends the swap of its members. */
void swap_drop(struct swap *swap);
static inline struct session *swap_first(const struct swap *swap)
{
	return TAILQ_FIRST(&swap->members);
}

/* Sets (swap_set.c). */
/** The members or their holdings have changed: lists their memory anew. */
void swap_list(struct swap *swap);
void swap_join(struct swap *swap, struct session *session);
/** Adds all sessions that share device memory with a member, directly or by way of others. Return:
 * NULL, or the obstacle (static text) */
const char *swap_gather(struct swap *swap);
/** Adds all sessions that have the same files: they left together in an earlier life of the
 * daemon. */
void swap_gather_by_files(struct swap *swap);
/** A member, not the last one, ends: the others go on without it. The memory is AWAY. */
void swap_remove(struct swap *swap, struct session *session);
/** The obstacle of a member, named unless the member is the first. Valid until the next call. */
const char *swap_obstacle_of(const struct session *member, const char *text);
/** True if the session has commands that are not given to the device. */
bool swap_has_work(const struct session *session);
/** True if the memory stays away, whoever asks for it: a member is checkpointed. */
bool swap_is_held(const struct swap *swap);
/** True if a member has work or a request that needs the memory, or the end of a drain does. */
bool swap_is_needed(const struct swap *swap);
/** Notes the place of the memory of all members. */
void swap_set_memory(struct swap *swap, enum session_memory memory);
/** Counts the memory of all members as on the device, or not. */
void swap_set_away(struct swap *swap, bool away);
/** Starts a new round: answers still to come are ignored. */
void swap_round(struct swap *swap);

/** Calls `done`, once. */
void swap_say(struct swap *swap, int32_t code, const char *text);
void swap_note(struct session *session, const char *what);
/** @where: the present place of the memory */
void swap_note_moved(struct swap *swap, const char *where);

/** Sends a request. A failure to send is trouble, and may end the round at once. @piece: for the
 * answer; may be NULL */
void swap_ask(struct swap *swap, struct worker *worker, struct wire_message *message,
	struct shared_fd *const *fd, worker_reply_fn *reply, struct piece *piece);
/** Call first for each answer. Return: false: ignore the answer */
bool swap_take(struct ticket *ticket);
/** Call last for each answer. */
void swap_drop_ticket(struct ticket *ticket);
/** An answer that is no success; NULL: there is none. */
void swap_fail_by(struct swap *swap, const struct wire_reply *reply);

/** Handles an answer without values: goes on, or fails. */
void swap_go_on(struct ticket *ticket, const struct wire_reply *reply, void (*next)(struct swap *swap));

/** Each request has its place in one of the files, at the same offset as in all: the files are
 * sparse. The return uses the same requests. */
static inline struct shared_fd *const *swap_file_at(struct shared_fd *const *files, uint64_t offset)
{
	return &files[offset / SWAP_CARRY_BYTES % KEPT_SWAP_FILES];
}

/** Makes the files of all members, for all their memory each. Return: NULL, or the obstacle (static
 * text) */
const char *swap_make_files(struct swap *swap);
/** Gives the pages of a chunk that nobody has any more back to the machine. */
void swap_empty_files(const struct session *session, const struct piece *piece);
/** Copies all pieces on the present way. */
void swap_copy(struct swap *swap);

/** Splits the memory off the chunks: swap_release_all() releases that memory. */
void swap_empty_all(struct swap *swap);
/** Releases that memory. Before: standbys get the change, and the chunks are empty. Active
 * executors unmap the memory, or answer that nothing is mapped. */
void swap_release_all(struct swap *swap);
void swap_unmap_message(const struct holding *entry, struct wire_message *ret_message);

/** The memory is on the device, as it was, or again: records that, releases the files, and lets the
 * members go on. */
void swap_be_here(struct swap *swap);

/** The memory stays on the device: LEAVES is over. */
void swap_stay(struct swap *swap, int32_t code, const char *text);

/** The memory is to come back. */
void swap_want(struct swap *swap);
/** Begins the return if the memory is wanted and the return can begin now (swap_back.c). May end
 * the swap. */
void swap_begin_return(struct swap *swap);
/** True if a session makes room for others, or has done so a moment ago. */
bool swap_is_displacing(const struct daemon *daemon);
/** Others do not displace the session for so long (swap_choose.c). */
void swap_stays(struct session *session, uint64_t least_us);
/** The memory is back, after so long. */
void swap_note_return(struct session *session, uint64_t took_us);
/** Releases the memory that has come already: RETURNS is AWAY again. */
void swap_fall_back(struct swap *swap);
/** swap_begin_return() as a callback. @context: a swap */
void swap_on_retry(void *context);

#endif
