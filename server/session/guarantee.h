// Memory that sessions have for certain (memory_guarantee). What a session is guaranteed and does
// not hold is kept free for it: others are refused beyond their own guarantees (memory_policy =
// refuse, swap), or may take it and end when it is needed (evict). Only looks and computes; daemon,
// loop thread only.
//
// All figures are what sessions hold: whole chunks. One that several have counts for who has had it
// longest. What a session gave back and executors have not unmapped yet is free here: a request for
// it waits (reclaim.h). The device has its total bytes, without the sinks of sessions, and on a GPU
// without GUARANTEE_EXECUTOR_BYTES for each executor, also for those that are to start.

#ifndef FRMPS_SERVER_SESSION_GUARANTEE_H
#define FRMPS_SERVER_SESSION_GUARANTEE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;
struct rules;
struct session;
struct wire_message;

/* What a context and its code take of a GPU, about. */
#define GUARANTEE_EXECUTOR_BYTES (UINT64_C(512) << 20)

/** Device memory that a session's request asks for, bytes. */
uint64_t guarantee_wish(const struct session *session, const struct wire_message *message);

/** Most that a session may still take without what is kept for others, bytes. UINT64_MAX: nothing
 * is kept for anybody. */
uint64_t guarantee_room(const struct session *session);

/** Whether what its request is about to bring takes nothing that is kept for others. */
bool guarantee_fits(const struct session *session);

/** Whether so many more executors take nothing that is kept for anybody. */
bool guarantee_allows_executors(const struct daemon *daemon, uint64_t count);

/** Whether the sinks of all that are served take nothing that is kept for anybody. */
bool guarantee_allows_sinks(const struct daemon *daemon);

/**
 * Whether a session that is about to be served cannot have its guarantee.
 * @ret_text: why
 */
bool guarantee_refuses(const struct session *session, char *ret_text, size_t size);

/**
 * Whether rules promise more to sessions that are served than there is, beside what others hold
 * where the policy is to refuse; or more than the device has to anybody.
 * @ret_text: why
 */
bool guarantee_refuses_rules(
	const struct daemon *daemon, const struct rules *rules, char *ret_text, size_t size);

/** Whether so much more is what is guaranteed to the session. */
bool guarantee_covers(const struct session *session, uint64_t bytes);

/**
 * The session that ends for what another one asks within its guarantee, when there is no memory:
 * the one whose end frees most of what it holds beyond its own.
 * Return: NULL if nobody is to end for it
 */
struct session *guarantee_victim(const struct session *session, uint64_t bytes);

#endif
