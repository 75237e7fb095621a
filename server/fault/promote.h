// A domain's way from the loss of its active executor to the next one. States: incident.h; rules:
// promote.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_PROMOTE_H
#define FRMPS_SERVER_FAULT_PROMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/incident/incident.h"
#include "server/incident/judge.h"

struct domain;
struct session;
struct wire_trouble;
struct worker;

/** True if everybody waits for the worker: no executor serves the domain's sessions, and no
 * executor that has served them, and whose kernels could be the obstacle, is left. */
bool promote_is_awaited(const struct worker *worker);

/**
 * The active executor shows a sign of a fault and lives.
 * Return: true if the executor is halted; otherwise the caller terminates a worker that has lost
 * its context.
 */
bool promote_sign(struct domain *domain, struct worker *worker, const char *sign);
/** The active executor has not closed a session in time. */
void promote_close_overdue(struct domain *domain);
/** A standby that has answered everything: only then the daemon knows which sessions the standby
 * can take over. NULL: none. */
struct worker *promote_find_warm(const struct domain *domain);

/** The active executor has contained a fault of a session: the session has got its error, everybody
 * else goes on. */
void promote_contained(
	struct domain *domain, struct worker *worker, uint64_t session, const struct wire_trouble *fault);
/** The active executor has not answered in time. A sign that blames nobody. */
void promote_silent(struct domain *domain, struct worker *worker);
/**
 * An event that needs no further data: takes the step, and carries its actions out.
 * Return: of enum incident_action; 0: the event means nothing in the domain's state
 */
unsigned promote_take(struct domain *domain, enum incident_event event);
/** Goes on from the record of an earlier life of the daemon. */
void promote_resume(struct domain *domain);
/** Sends the Activate that is under way again: the daemon has died since. */
void promote_activate_again(struct domain *domain);
/** A worker of the domain is being terminated; if the worker is the active executor, the domain's
 * sessions are held. */
void promote_detect(struct domain *domain, struct worker *worker);
/** A worker of the domain was reaped and has left the domain's list. */
void promote_fenced(struct domain *domain, struct worker *worker);
/** The active executor issues nothing any more and is off the device: whatever ran was cut. */
void promote_off_device(struct domain *domain);
/** Halting has succeeded: nothing of a survivor is left in the active executor, and the executor
 * issues nothing. */
void promote_hand_over(struct domain *domain);
/**
 * The active executor serves, and nothing of any session is on the device: ends the executor, whose
 * sessions wait for the next one. Nobody has lost anything. Return: false in any other state
 */
bool promote_dismiss(struct domain *domain, const char *reason);
/** A standby knows everything. */
void promote_warm(struct domain *domain, struct worker *worker);
/** Work of a dead program does not end: replace the active executor as soon as a standby is
 * warm. */
void promote_orphan(struct domain *domain, const struct session *session);

/** Work of a program has passed its time limit: replace the executor likewise; the program gets an
 * error. */
void promote_over_limit(struct domain *domain, struct session *session);

/** The turn is recorded: holds the sessions of a domain with a new incident, which is all that
 * programs see of a promotion. A daemon that finds sessions held must know of the incident. */
void promote_recorded(struct domain *domain);

#endif
