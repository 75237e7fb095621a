// The part of a domain's record that fault/ changes, so that the state of the domain and the
// sessions outlives the daemon and is never older or newer than the rest of the record. Daemon,
// loop thread only.

#ifndef FRMPS_SERVER_SESSION_SAVED_H
#define FRMPS_SERVER_SESSION_SAVED_H

#include <stddef.h>

struct domain;
struct session;

/** Writes the part. @bytes: destination; NULL: nothing is written. Return: its length, bytes */
size_t saved_write(const struct domain *domain, void *bytes);

/**
 * Reads the part of an earlier life of the daemon into a new domain.
 * @size: of the part, bytes; the contents are trusted
 */
void saved_read(struct domain *domain, const void *bytes, size_t size);
/** Gives a session of the domain its share of the part. */
void saved_give(struct session *session);
/** All sessions have theirs: forgets the list. Twice is fine. */
void saved_forget(struct domain *domain);

#endif
