// The latest verdicts about faults, for operators: what happened, whose programs it was, and when. A verdict outlives its
// culprit and its domain; it is forgotten when its user has FAULTS_PER_USER later ones, when there are FAULTS_MAX later
// ones of all users, or when the service ends: another life of the daemon goes on
// with all of them. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_FAULTS_H
#define FRMPS_SERVER_SESSION_FAULTS_H

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct daemon;
struct record;

#define FAULTS_MAX	256u
#define FAULTS_PER_USER 32u

struct fault {
	TAILQ_ENTRY(fault) link;
	int64_t time_ms; /* since the epoch */
	uid_t uid;	 /* -1: nobody's programs were concerned */
	char *verdict;	 /* without control characters */
	const struct record *record;
};

TAILQ_HEAD(fault_list, fault); /* latest first */

/** Makes one of a record of an earlier life again; the latest comes last. */
void faults_adopt(struct daemon *daemon, const struct record *record);
/** Lets go of all; their records stay. */
void faults_deinit(struct daemon *daemon);

/**
 * Keeps a verdict.
 * @uid: whose programs were concerned; -1: nobody's
 * @verdict: copied
 * Return: the time that it is kept with, milliseconds since the epoch
 */
int64_t faults_note(struct daemon *daemon, uid_t uid, const char *verdict);

#endif
