// What has happened (session/events.h), as operators are told of it. Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_EVENTS_H
#define FRMPS_SERVER_CONTROL_EVENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon;

/** Whether there are events with a higher number than `after` that a user may see. */
bool events_has_later(const struct daemon *daemon, uid_t uid, uint64_t after);

/**
 * Those events as a document. Root and the service's own user see all, others those of their own
 * programs.
 * Return: a string of the caller's, NULL when out of memory.
 */
char *events_json(const struct daemon *daemon, uid_t uid, uint64_t after);

/** The verdicts among the events, as the same user may see them, the latest first. Return: the
 * same */
char *faults_json(const struct daemon *daemon, uid_t uid);

#endif
