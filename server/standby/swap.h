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

/**
 * Begins to suspend a session.
 * Return: NULL, or why it cannot be (static text); then `done` is not called
 */
const char *swap_begin(struct session *session, swap_done_fn *done, void *context);

/**
 * Brings the memory of a session back, or keeps it where it is if it has not gone yet. `done` is
 * called within, or later, and for a first try that fails: more are made until it is back.
 */
void swap_end(struct session *session, swap_done_fn *done, void *context);

/** Whoever asked is not there any more. */
void swap_forget(struct session *session, const void *context);

/** Bytes of host memory that the device memory of all sessions takes, and that it may take
 * (swap_host_bytes). */
uint64_t swap_all_bytes(const struct daemon *daemon);
uint64_t swap_most_bytes(const struct daemon *daemon);

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
