// Attribution of guard hits: the sessions whose kernels may have run since a sample, and the
// verdict on a look's findings (stray.c). Main thread unless noted.

#ifndef FRMPS_SERVER_EXECUTOR_SUSPECT_H
#define FRMPS_SERVER_EXECUTOR_SUSPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "server/executor/tenant.h"

/* The findings in the sinks, for the log. */
struct suspect_evidence {
	uint32_t words;	 /* changed words in the first piece with any; 0: none any more */
	uint32_t offset; /* of the first */
	uint32_t value;
};

/* Sessions that are not served here cannot have a kernel running. */
static inline bool suspect_is_served(const struct tenant *tenant)
{
	return word_relaxed(&tenant->generation) != 0;
}

/** Takes a sample: numbers this moment, and notes the sessions of which a kernel may have run since
 * the sample before.
 */
void suspect_sample(struct executor *executor);
/**
 * Sets the processes of executors that have the same sinks: until each has ended, or is missing in
 * the next list, every sample counts a kernel that is of no session here.
 */
void suspect_set_formers(struct executor *executor, const struct wire_u32s *pids);
/** Forgets these processes. */
void suspect_forget_formers(struct executor *executor);
/** The session is no suspect any more for later writes. */
void suspect_leave(struct tenant *tenant);

/** Attributes a change of a session's sinks since the last clean look. The caller fills the sinks
 * afterwards. */
void suspect_judge(struct tenant *owner, const struct suspect_evidence *evidence, uint64_t now);
/** Ends the session if a guard hit was attributed to it. Serving thread, every turn. */
void suspect_sentence(struct tenant *tenant);

#endif
