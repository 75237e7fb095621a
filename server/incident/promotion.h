// The state of a domain's incident (incident.h), and of its latest verdict. fault/ changes it;
// every room may read it. Data alone; daemon, loop thread only.

#ifndef FRMPS_SERVER_INCIDENT_PROMOTION_H
#define FRMPS_SERVER_INCIDENT_PROMOTION_H

#include <stdbool.h>
#include <stdint.h>

#include "server/incident/incident.h"
#include "server/incident/judge.h"

struct saved_list;
struct timer;

/* Why the active executor is replaced. */
enum promote_cause {
	PROMOTE_LOST,	/* the executor died, broke the protocol or lost its context */
	PROMOTE_SIGN,	/* a sign of a fault */
	PROMOTE_SILENT, /* the executor does not answer, and shows no other sign */
	PROMOTE_ORPHAN, /* work of a dead program runs in the executor and does not end */
	PROMOTE_LIMIT,	/* work of a program has passed its time limit */
};

/* When things happened, microseconds; 0: not in this promotion. */
struct promote_times {
	uint64_t detected, halted, quiet, fenced, judged, activate;
};

/* The promotion of a domain that loses its active executor. Everything up to the handles outlives
 * the daemon (saved.h). */
struct promotion {
	enum incident_state state;
	enum promote_cause cause; /* of the latest loss */
	bool fell_short;	  /* the executor that is lost now had not answered Activate */
	struct judge_verdict verdict;
	char verdict_text[2048]; /* the latest verdict; empty before the first */
	int64_t verdict_ms;	 /* of the verdict, milliseconds since the epoch */
	/* About the culprit, copied because the session may be gone when the promotion is over. */
	int culprit_pid;
	char culprit_program[64];
	struct promote_times times;
	uint64_t over_limit; /* session whose work has passed its time limit; 0: none */
	/* Halting. */
	uint64_t halt_until_us;
	uint64_t moved_us;	 /* when a mark was last seen to arrive */
	uint64_t progress;	 /* by which movement is noticed */
	uint64_t fence_until_us; /* LEAVING: deadline for leaving the device */
	char sign[160];		 /* the first sign, as text */
	bool orphan;		 /* work of a dead program runs in the active executor and does not end */
	uint64_t contained;	 /* session of the latest fault that was contained; 0: there was none */
	/* Handles: of this life of the daemon alone. */
	struct timer *halt_timer;
	struct timer *time_limit_timer; /* NULL: no limit */
	struct saved_list
		*adopted; /* evidence of an earlier life about sessions that are not adopted yet; NULL: all
			   * are */
};

#endif
