// Who can have changed a sink: which sessions had kernels running since when, and the judgement on
// what a look has found (stray.c). Main thread, but for what is said of another one.

#ifndef FRMPS_SERVER_EXECUTOR_SUSPECT_H
#define FRMPS_SERVER_EXECUTOR_SUSPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "server/executor/tenant.h"

/* What was found in the sinks, for the log. */
struct suspect_evidence {
	uint32_t words;	 /* changed ones in the first piece that has any; 0: none are any more */
	uint32_t offset; /* of the first */
	uint32_t value;
};

/* Those that are not cannot have a kernel running. */
static inline bool suspect_is_served(const struct tenant *tenant)
{
	return word_relaxed(&tenant->generation) != 0;
}

/** Numbers this moment, and notes for each session whether a kernel of it may have run since the
 * one before.
 */
void suspect_sample(struct executor *executor);
/**
 * Processes of executors that have the same sinks: until they have ended, or are not in the next
 * list any more, somebody has run in each moment who is no session of ours.
 */
void suspect_set_formers(struct executor *executor, const struct wire_u32s *pids);
/** Forgets them. */
void suspect_forget_formers(struct executor *executor);
/** The session is no suspect any more for what is done from now on. */
void suspect_leave(struct tenant *tenant);

/** The sinks of a session are not what they were when they were last clean. They are to be filled
 * behind this. */
void suspect_judge(struct tenant *owner, const struct suspect_evidence *evidence, uint64_t now);
/** Carries out a conviction. Serving thread, every turn. */
void suspect_sentence(struct tenant *tenant);

#endif
