// Swap: the device memory of a session goes to host memory, and comes back. States and rules:
// swap.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_SWAP_H
#define FRMPS_SERVER_STANDBY_SWAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon;
struct domain;
struct session;
struct worker;

/**
 * The end of a swap.
 * @code: CUDA_SUCCESS: the memory has arrived; CUDA_ERROR_MPS_CLIENT_TERMINATED: it stays on the
 * device, because another session that shares it has ended; try again
 * @text: reason of a failure, and the place of the memory
 */
typedef void swap_done_fn(void *context, int32_t code, const char *text);

/* When a session goes, and how long its memory is away. */
enum swap_manner {
	SWAP_AT_REST, /* goes without commands; comes back for commands */
	/* commands are held, work on the device ends; comes back once there is room */
	SWAP_NOW,
	SWAP_PAUSED,	   /* the same, then paused like by session_pause(): until resumed */
	SWAP_PAUSED_BY_US, /* by an operator of the service */
	/* as SWAP_NOW, also without memory; comes back with the device
	 * (daemon/device_drain.h) */
	SWAP_DRAINED,
	/* as SWAP_DRAINED, but the memory is copied, into the stash (stash.h) as far as there is
	 * one, and stays on the device, unchanged until swap_end() */
	SWAP_COPIED,
};

/** True for orders that hold also sessions without memory or with a request. */
static inline bool swap_is_of_all(enum swap_manner manner)
{
	return manner >= SWAP_DRAINED;
}

/** Checks if the memory of a session could leave, apart from what passes by itself, and from other
 * sessions that share the memory. Return: NULL, or the obstacle (static text) */
const char *swap_refuses(const struct session *session);
/** Bytes that may still leave, of all sessions of an owner (session/owner.h) together. UINT64_MAX:
 * any number */
uint64_t swap_room(const struct daemon *daemon, uid_t owner);
/** Checks if so many bytes may still leave. Return: NULL, or the obstacle, a text that is valid
 * until the next call */
const char *swap_refuses_bytes(const struct daemon *daemon, uid_t owner, uint64_t bytes);

/**
 * Begins to suspend a session, and all sessions that share device memory with it. After a copy
 * (SWAP_COPIED) `done` says that the files, or files and stash, are complete, and the state stays
 * LEAVES.
 * Return: NULL, or the obstacle, a text that is valid until the next call; then `done` is not
 * called
 */
const char *swap_begin(struct session *session, enum swap_manner manner, swap_done_fn *done, void *context);

/**
 * After a copy: what was in the stash goes to the files from the sessions' memory, as all would
 * have without a stash.
 * Return: false, and `done` is not called, if the sessions go on already
 */
bool swap_copy_again(struct session *session, swap_done_fn *done, void *context);

/**
 * Brings back the memory of a session and of those that left with it, or keeps the memory where it
 * is if it has not gone yet.
 * `done` is called within, or later, and for a first try that fails: swap then tries again until
 * the memory is back.
 */
void swap_end(struct session *session, swap_done_fn *done, void *context);

/** True if both are the same, or their memory left together and is not back. */
bool swap_is_with(const struct session *session, const struct session *other);

/* Sessions whose memory leaves and comes back together: a set (swap_set.c). */
struct swap_group {
	struct session **at; /* a reference to each */
	uint32_t count;
};

/**
 * Finds the set of a session, wherever its memory is.
 * @ret_group: the session is the first; for swap_free_group(). All zero on failure
 * Return: NULL, or the obstacle (static text)
 */
const char *swap_find_group(struct session *session, struct swap_group *ret_group);
void swap_free_group(struct swap_group *group);

/** The obstacle of a session that another one shares its memory with, named. Valid until the next
 * call. */
const char *swap_name_obstacle(uint64_t session, pid_t pid, const char *text);

/**
 * The files of the session's memory have all bytes before this one, or SESSION_FILLED. Say the same
 * of all that share memory with the session, before its memory is what executors may use.
 */
void swap_fill(struct session *session, uint64_t place);

/** Another device has the memory of the session's set, with its files: that is no longer away
 * here. */
void swap_hand_over(struct session *session);

/** True if the memory is away and wanted, and the latest try to bring it back has failed. */
bool swap_is_short(const struct session *session);

/** The session's memory, which is away, stays away: nothing brings it back until somebody asks
 * again. */
void swap_stay_away(struct session *session);

/** The caller no longer waits. */
void swap_forget(struct session *session, const void *context);

/* Device memory that is, or is about to be, in host memory and in swap_directory, bytes. */
struct swap_bytes {
	uint64_t host, directory;
};

/** Adds the bytes of a session. */
void swap_add_bytes(const struct session *session, struct swap_bytes *bytes);
/** The bytes of all sessions of an owner. @owner: NULL: of all */
struct swap_bytes swap_bytes_of(const struct daemon *daemon, const uid_t *owner);
/** Most bytes of an owner in host memory: his swap_host_bytes, or a share of what others leave. */
uint64_t swap_budget(const struct daemon *daemon, uid_t owner);
/** Most bytes of all owners in host memory. */
uint64_t swap_most_bytes(const struct daemon *daemon);

/* As since_us: the session waits for all others, however long they work. */
#define SWAP_PATIENT UINT64_MAX

/**
 * Makes room for so many bytes of a session on the device, if the session's policy says so
 * (memory_policy = swap): suspends another session. Rules: swap_choose.c.
 * @since_us: when the session began to wait: it waits for sessions that rest from then on
 * Return: milliseconds after which, at the latest, the caller tries again; 0: no session can make
 * room
 */
uint64_t swap_make_room(struct session *asker, uint64_t bytes, uint64_t since_us);
/** Device memory that others could free for the session at this moment, bytes. */
uint64_t swap_spare(const struct session *asker);

/** Call before a request of the session is sent. Return: true if the request waits until the memory
 * is back; this call brings the memory back unless the session is paused. */
bool swap_holds(struct session *session);
/** Another session needs memory of this one: brings that back, or does nothing while it leaves. */
void swap_call(struct session *session);
/** An executor says that the session has work. */
void swap_take_wanted(struct worker *worker, uint64_t session);

/** The domain's executor serves. */
void swap_look_into(struct domain *domain);
/** Device memory of another session has come back. */
void swap_retry(struct daemon *daemon);

/** The domain's active executor is in trouble. */
void swap_call_off(struct domain *domain);
/** The session ends. */
void swap_abandon(struct session *session);

/** A session whose memory was on the way, or away, when an earlier life of the daemon ended. */
void swap_adopt(struct session *session);

#endif
