// Attribution: collects the evidence of an executor's loss, puts the evidence before the judge and
// gives each session its recover code. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_ATTRIBUTE_H
#define FRMPS_SERVER_FAULT_ATTRIBUTE_H

#include <stdbool.h>
#include <stdint.h>

struct domain;
struct judge_verdict;
struct session;
struct worker;

/* After so many losses in a row, commands that were in flight in each of them are not repeated
 * again. */
#define ATTRIBUTE_LOSSES_MAX 3u

/**
 * Judges the loss of `worker`, which was the active executor and issues nothing any more: fills in
 * the promotion's verdict and every session's `recover`, and counts once more the commands in
 * flight.
 */
void attribute(struct domain *domain, const struct worker *worker);

/** Return: of enum shm_doubt, which the executor wrote about a fault without a known culprit. */
uint32_t attribute_doubt(const struct domain *domain, const struct worker *worker);

/** True if this worker served the session, and not only an older generation. */
bool attribute_was_served(const struct session *session, const struct worker *worker);

/** Notes that a kernel of this session faulted and was contained. */
void attribute_contained(struct domain *domain, uint64_t number);
/** True if a fault of the session was noted before: a grid of many warps may fault again and again
 * until all its warps have ended, several grids in turn. All of that is one fault of the
 * program. */
bool attribute_is_noted(const struct domain *domain, uint64_t number);

/** The verdict so far: names only sessions that are guilty whatever else comes to light. Changes
 * nothing. */
void attribute_preview(
	const struct domain *domain, const struct worker *worker, struct judge_verdict *ret_verdict);

#endif
