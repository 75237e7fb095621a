// A promotion in words: for the log, for programs that are told an error, for the operator. Daemon,
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

/** Why the executor was replaced, in one sentence for a program. */
void verdict_reason(const struct promotion *promotion, char *text, size_t size);

/**
 * Logs a promotion that is over, and keeps the text for the operator.
 * @worker: which serves now
 * @values: its reply to Activate
 */
void verdict_report(struct domain *domain, const struct worker *worker, const struct wire_u64s *values);

/**
 * Logs what a loss was judged to be whose promotion is not over, because the next executor is lost
 * as well: the verdict of that loss takes its place.
 */
void verdict_cut_short(struct domain *domain);

/** Logs a fault that was contained, and keeps the text for the operator. */
void verdict_contained(struct domain *domain, uint64_t session, const struct wire_trouble *fault);

/**
 * The same where nothing has faulted, but kernels of one program did not end and were ended
 * (endless.h): of a program over its limit of time, and of one that is gone.
 * @kernel: one of them, empty: not known; took_us: from the question to the end
 */
void verdict_over_limit(
	struct domain *domain, const struct session *session, const char *kernel, uint64_t took_us);
void verdict_orphan(struct domain *domain, const struct session *session);

/**
 * Logs a stray write of a kernel, and keeps the text for the operator.
 * @owner: session whose guard it hit
 * @stays: if nobody is proved guilty, why that session does not move (separate.h); NULL: it does
 */
void verdict_stray(struct domain *domain, uint64_t owner, const struct wire_stray *stray, const char *stays);

#endif
