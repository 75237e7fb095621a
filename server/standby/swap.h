// The device memory of a session goes to host memory, and comes back. States and rules: swap.c.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_SWAP_H
#define FRMPS_SERVER_STANDBY_SWAP_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct domain;
struct session;
struct worker;

/**
 * How it ended.
 * @code: CUDA_SUCCESS: the memory is where it was to be
 * @text: why it is not, and where it is
 */
typedef void swap_done_fn(void *context, int32_t code, const char *text);

/* When a session goes, and until when it is away. */
enum swap_manner {
	SWAP_AT_REST, /* if it has no commands; until it has some */
	SWAP_NOW,     /* its commands are held, and what is on the device ends; as soon as there is room */
	SWAP_PAUSED,  /* the same; it is paused then, as by session_pause(): until it is resumed */
	SWAP_PAUSED_BY_US, /* by an operator of the service */
};

/**
 * Begins to suspend a session.
 * Return: NULL, or why it cannot be (static text); then `done` is not called
 */
const char *swap_begin(struct session *session, enum swap_manner manner, swap_done_fn *done, void *context);

/**
 * Brings the memory of a session back, or keeps it where it is if it has not gone yet. `done` is
 * called within, or later, and for a first try that fails: more are made until it is back.
 */
void swap_end(struct session *session, swap_done_fn *done, void *context);

/** Whoever asked is not there any more. */
void swap_forget(struct session *session, const void *context);

/* Device memory that is, or is about to be, in host memory and in swap_directory, bytes. */
struct swap_bytes {
	uint64_t host, directory;
};

/** Adds what a session has there. */
void swap_add_bytes(const struct session *session, struct swap_bytes *bytes);
/** What all sessions have there. */
struct swap_bytes swap_all_bytes(const struct daemon *daemon);
/** Most that may be in host memory (swap_host_bytes). */
uint64_t swap_most_bytes(const struct daemon *daemon);

/**
 * Makes room for so many bytes of a session on the device, if its policy says so (memory_policy =
 * swap): suspends another one. Rules: swap_choose.c.
 * @since_us: when it began to wait: who rests from then on is waited for
 * Return: milliseconds after which, at the latest, the session looks again whether it fits; 0: no
 * room can be made
 */
uint64_t swap_make_room(struct session *asker, uint64_t bytes, uint64_t since_us);
/** Device memory of others that would be made free for it at this moment, bytes. */
uint64_t swap_spare(const struct session *asker);

/** A request of the session is to be made. Return: whether it waits until the memory is back, which
 * this calls for unless the session is paused. */
bool swap_holds(struct session *session);
/** An executor says that the session has work. */
void swap_take_wanted(struct worker *worker, uint64_t session);

/** The domain's executor serves. */
void swap_look_into(struct domain *domain);
/** Device memory has come back from somebody. */
void swap_retry(struct daemon *daemon);

/** The domain's active executor is in trouble. */
void swap_call_off(struct domain *domain);
/** The session ends. */
void swap_abandon(struct session *session);

/** A session whose memory was on its way, or away, when an earlier life of the daemon ended. */
void swap_adopt(struct session *session);

#endif
