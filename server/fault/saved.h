// What fault/ knows of a domain and its sessions and is to outlive the daemon: one part of the
// domain's record, so that it is never older or newer than who is active. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_SAVED_H
#define FRMPS_SERVER_FAULT_SAVED_H

#include <stddef.h>

struct domain;
struct session;

/** Writes that part. @bytes: where; NULL: nothing is written. Return: its length, bytes */
size_t saved_write(const struct domain *domain, void *bytes);

/**
 * Reads what an earlier life of the daemon has written into a domain that knows nothing yet.
 * @size: of the part, bytes; the contents are trusted
 */
void saved_read(struct domain *domain, const void *bytes, size_t size);
/** Gives a session of the domain what was read of it. */
void saved_give(struct session *session);
/** All sessions have theirs: forgets the list. Twice is fine. */
void saved_forget(struct domain *domain);

#endif
