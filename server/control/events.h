// Events (session/events.h) as documents for operators. Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_EVENTS_H
#define FRMPS_SERVER_CONTROL_EVENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon;

/** True if there are events with a higher number than `after` that a user may see. */
bool events_has_later(const struct daemon *daemon, uid_t uid, uint64_t after);

/**
 * Those events as a document. Root and the service's own user see all, others those of their own
 * programs.
 * Return: a string of the caller's, NULL when out of memory.
 */
char *events_json(const struct daemon *daemon, uid_t uid, uint64_t after);

/** The verdicts among the events, for the same user, the latest first. Return: likewise */
char *faults_json(const struct daemon *daemon, uid_t uid);

#endif
