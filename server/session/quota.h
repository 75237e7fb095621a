// What all users share because it is the service's own: places for sessions, open files and the
// memory of records. (Address windows belong to a user's context.) Without a file left an answer of
// the keeper cannot be received, and a record that finds no room is the end of the daemon; so both
// are given out to sessions only as far as the service itself can spare them, and a user never gets
// all. Guests (guests.h) have a share of the files of their own: sessions never get it, and guests
// never more. A user's share is one with that of his subordinate users (owner.h). Daemon, loop
// thread only.

#ifndef FRMPS_SERVER_SESSION_QUOTA_H
#define FRMPS_SERVER_SESSION_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon;
struct session;
struct session_peer;
struct wire_message;

/** Whether the service can keep what a success of a request leaves. */
bool quota_allows(const struct session *session, const struct wire_message *message);

/**
 * Whether a user may have one more session: the service has room for it, and the user's share is
 * not used up. The share is clients_per_user_max, or without that half of what is free.
 * @ret_code: CUresult for the program, only where it is refused
 * Return: NULL, or why it is refused (static text)
 */
const char *quota_refuses_session(
	const struct daemon *daemon, const struct session_peer *peer, int32_t *ret_code);

/**
 * A session was refused memory because of a limit: an event, but for one that the same limit
 * refused before and that has been granted nothing since.
 * @limit: as the configuration calls it, static
 * @bytes: that it asked for
 */
void quota_note_limit(struct session *session, const char *limit, uint64_t bytes);

/** Whether a user may do what only the operator of the service may: root, and the user who runs the
 * service. */
bool quota_is_operator(uid_t uid);

/**
 * Whether what a user's programs keep open of the service's files leaves room for one more session
 * of his.
 * @limit: pinned_limit of the user, bytes; 0: none
 */
bool quota_allows_user(struct daemon *daemon, uid_t owner, uint64_t limit);

/* Guests that there may be at least and at most, however few or many files the service may open. */
#define QUOTA_GUESTS_LEAST 16u
#define QUOTA_GUESTS_MOST  256u

/** How many guests there may be, all users' together. */
uint64_t quota_guests(const struct daemon *daemon);

#endif
