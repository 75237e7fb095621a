// The latest verdicts about faults, for operators: what happened, whose programs it was, and when. A verdict outlives its
// culprit and its domain; it is forgotten when its user has FAULTS_PER_USER later ones, when there are FAULTS_MAX later
// ones of all users, or when the daemon ends. Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_FAULTS_H
#define FRMPS_SERVER_CONTROL_FAULTS_H

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct daemon;
struct fault;

#define FAULTS_MAX	256u
#define FAULTS_PER_USER 32u

TAILQ_HEAD(fault_list, fault); /* latest first */

/** Forgets all. */
void faults_deinit(struct daemon *daemon);

/**
 * Keeps a verdict.
 * @uid: whose programs were concerned; -1: nobody's
 * @verdict: copied
 * Return: the time that it is kept with, milliseconds since the epoch
 */
int64_t faults_note(struct daemon *daemon, uid_t uid, const char *verdict);

/**
 * The document as a user may see it: root and the service's own user see all, others their own.
 * Return: a string of the caller's, NULL when out of memory.
 */
char *faults_json(const struct daemon *daemon, uid_t uid);

#endif
