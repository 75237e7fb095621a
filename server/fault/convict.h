// What is known of the loss of an executor is collected and put before the judge, and each session
// gets its recover code. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_CONVICT_H
#define FRMPS_SERVER_FAULT_CONVICT_H

#include <stdbool.h>
#include <stdint.h>

struct domain;
struct judge_verdict;
struct session;
struct worker;

/* Losses in a row after which commands that were in doubt in each of them are not repeated
 * again. */
#define CONVICT_LOSSES_MAX 3u

/**
 * Judges the loss of `worker`, which was the active executor and issues nothing any more: fills in
 * the promotion's verdict and every session's `recover`, and counts what was in doubt once more.
 */
void convict(struct domain *domain, const struct worker *worker);

/** What an executor has said of a fault of which it has not said whose it is: of enum shm_doubt. */
uint32_t convict_doubt(const struct domain *domain, const struct worker *worker);

/** Whether a worker served the session: an older generation's work is none of its. */
bool convict_was_served(const struct session *session, const struct worker *worker);

/** A fault was contained, and this session's kernel it was. */
void convict_contained(struct domain *domain, uint64_t number);
/** Whether one was before: a grid of many warps may fault again and again until all of it has
 * ended, several grids in turn. That is one fault of its program. */
bool convict_is_noted(const struct domain *domain, uint64_t number);

/** What can be said already: names only those who are guilty whatever else comes to light. Changes
 * nothing.
 */
void convict_preview(
	const struct domain *domain, const struct worker *worker, struct judge_verdict *ret_verdict);

#endif
