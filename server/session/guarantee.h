// Memory that sessions have for certain (memory_guarantee). The part of a guarantee that a session
// does not hold yet stays reserved: others are refused beyond their own guarantees (memory_policy =
// refuse, swap), or may take that memory and end when it is needed (evict). Only looks and
// computes; daemon, loop thread only.
//
// All figures are whole chunks that sessions hold. A shared chunk counts for the session that has
// had the chunk longest. Memory that a session freed and executors have not unmapped yet is free
// here: a request for that memory waits (reclaim.h). The capacity is the device's total bytes, or
// fewer (device_memory), without the sinks of sessions, and on a GPU without
// GUARANTEE_EXECUTOR_BYTES for each executor, also for executors that are to start. A device of
// fewer bytes than the GPU has a neighbour on the same GPU: then all sessions together never get
// more than the capacity, whether anything is guaranteed or not.

#ifndef FRMPS_SERVER_SESSION_GUARANTEE_H
#define FRMPS_SERVER_SESSION_GUARANTEE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;
struct rules;
struct session;
struct wire_message;

/* Need of a context and its code on a GPU, about. */
#define GUARANTEE_EXECUTOR_BYTES (UINT64_C(512) << 20)

/** Device memory of all programs together: that of the GPU, or device_memory. Bytes. */
uint64_t guarantee_device_bytes(const struct daemon *daemon);

/** Device memory that a session's request asks for, bytes. */
uint64_t guarantee_wish(const struct session *session, const struct wire_message *message);

/** Most that a session may still take without memory reserved for others, bytes. UINT64_MAX: no
 * reservations, and the device has all memory of the GPU. */
uint64_t guarantee_room(const struct session *session);

/** The key, for the operator, that keeps memory from the session beyond guarantee_room(). Static
 * text. */
const char *guarantee_reason(const struct session *session);

/** True if the session's request needs no memory that is reserved for others, or that is not the
 * device's. Memory of sessions that end is the device's until they have ended. */
bool guarantee_fits(const struct session *session);

/** Device memory that nobody has, or has a claim to: without all guarantees, whether they are used
 * or not. Bytes. */
uint64_t guarantee_spare(const struct daemon *daemon);

/** True if `count` more executors need no memory that is reserved for sessions, or that is not the
 * device's. */
bool guarantee_allows_executors(const struct daemon *daemon, uint64_t count);

/** True if the sinks of all served sessions need no memory that is reserved for sessions, or that
 * is not the device's. */
bool guarantee_allows_sink(const struct daemon *daemon);

/**
 * True if a session that is about to be served cannot have its guarantee.
 * @ret_text: the reason
 */
bool guarantee_refuses(const struct session *session, char *ret_text, size_t size);

/**
 * True if rules promise more to served sessions than the device has, beside memory that others hold
 * under the policy refuse; or more to any session than the device has at all.
 * @ret_text: the reason
 */
bool guarantee_refuses_rules(
	const struct daemon *daemon, const struct rules *rules, char *ret_text, size_t size);

/** True if a request for `bytes` lies within the session's guarantee. */
bool guarantee_covers(const struct session *session, uint64_t bytes);

/**
 * The session to end for a request of another session within its guarantee, when there is no
 * memory: the session whose end frees most memory beyond its own guarantee.
 * Return: NULL if no session is to end
 */
struct session *guarantee_victim(const struct session *session, uint64_t bytes);

#endif
