// Texts about a promotion: for the log, for programs that get an error, for the operator. Daemon,
// loop thread only.

#ifndef FRMPS_SERVER_FAULT_VERDICT_H
#define FRMPS_SERVER_FAULT_VERDICT_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/wire.h"

struct domain;
struct promotion;
struct session;
struct worker;

/** The reason for the replacement of the executor, in one sentence for a program. */
void verdict_reason(const struct promotion *promotion, char *text, size_t size);

/**
 * Logs a promotion that is over, and saves the text for the operator.
 * @worker: the new active executor
 * @values: the reply to Activate
 */
void verdict_report(struct domain *domain, const struct worker *worker, const struct wire_u64s *values);

/**
 * Logs the verdict of a loss whose promotion is not over, because the next executor is lost as
 * well, with a verdict of its own.
 */
void verdict_cut_short(struct domain *domain);

/** Logs a fault that was contained, and saves the text for the operator. */
void verdict_contained(struct domain *domain, uint64_t session, const struct wire_trouble *fault);

/**
 * The same without a fault, for kernels that did not end and were ended (endless.h): of a program
 * over its time limit, or of a dead program.
 * @kernel: the name of one; empty: unknown; took_us: from the request to the end
 */
void verdict_over_limit(
	struct domain *domain, const struct session *session, const char *kernel, uint64_t took_us);
void verdict_orphan(struct domain *domain, const struct session *session);

/**
 * Logs a guard hit, and saves the text for the operator.
 * @owner: session that has the guard
 * @hit: what was found
 */
void verdict_guard_hit(struct domain *domain, uint64_t owner, const char *hit);

#endif
