// Shares of the service's own resources: places for sessions, open files and the memory of records.
// (Address windows belong to a user's context.) Without a free file, the daemon cannot receive an
// answer of the keeper; a record without room ends the daemon. So sessions get both only as far as
// the service can spare them, and a user never gets all. Guests (guests.h) have a fixed share of
// the files: sessions never get that share, and guests never more. A user has one share together
// with his subordinate users (owner.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_QUOTA_H
#define FRMPS_SERVER_DAEMON_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon;
struct session;
struct session_peer;
struct wire_message;

/** True if the service has room for the holding and record that a request makes if it succeeds. */
bool quota_allows(const struct session *session, const struct wire_message *message);

/**
 * Checks if a user may have one more session: the service has room, and the user's share is not
 * used up. The share is clients_per_user_max, or without that half of the free places.
 * @beside: sessions of the same user that come together with this one, and count as there already
 * @ret_code: CUresult for the program, only for a refusal
 * Return: NULL, or the reason of the refusal (static text)
 */
const char *quota_refuses_session(
	const struct daemon *daemon, const struct session_peer *peer, uint64_t beside, int32_t *ret_code);

/**
 * A session was refused memory because of a limit. Notes an event, unless the same limit refused
 * the session before and the session got no memory since.
 * @limit: name in the configuration, static
 * @bytes: the size requested
 */
void quota_note_limit(struct session *session, const char *limit, uint64_t bytes);

/** True for operators of the service: root, and the user who runs the service. */
bool quota_is_operator(uid_t uid);

/**
 * True if the files of the service that a user's programs keep open leave room for one more session
 * of this user.
 * @limit: pinned_limit of the user, bytes; 0: none
 */
bool quota_allows_user(struct daemon *daemon, uid_t owner, uint64_t limit);

/* Guests that there may be at least and at most, however few or many files the service may open. */
#define QUOTA_GUESTS_LEAST 16u
#define QUOTA_GUESTS_MOST  256u

/** Most guests at a time, of all users together. */
uint64_t quota_guests(const struct daemon *daemon);

#endif
