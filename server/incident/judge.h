// Attribution of an executor's loss to the sessions that caused the loss. Pure functions over
// evidence that was collected after the executor was reaped; no process is touched, nothing is
// logged.

#ifndef FRMPS_SERVER_INCIDENT_JUDGE_H
#define FRMPS_SERVER_INCIDENT_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"

/* Kernels that a lost executor can name. */
#define JUDGE_WORDS_MAX LAST_WORDS_MAX

/* Evidence about the end of an executor. */
struct judge_evidence {
	struct last_words words[JUDGE_WORDS_MAX]; /* private copy; those without magic are empty */
	bool lost; /* the executor or a witness reported the context lost, with lost_code */
	int32_t lost_code;
	uint64_t lost_address; /* that was accessed, by the same report; 0: unknown */
	int exit_signal;       /* 0: the process exited */
	bool asked;	       /* the executor had a session's request at its end: the request may have
				* crashed the executor */
	bool suspected;	       /* ended by the daemon after a sign of a fault, or while at work on a fault */
	uint64_t over_limit;   /* session whose work has passed its time limit, else 0 */
};

enum judge_ground {
	JUDGE_NO_FAULT,	  /* the executor ended without a sign of a fault of a kernel */
	JUDGE_UNKNOWN,	  /* a fault, and nobody is named */
	JUDGE_LAST_WORDS, /* the executor named the session */
	JUDGE_OVER_LIMIT, /* no fault: work that has passed its time limit */
	JUDGE_GUARD,	  /* no fault: a kernel wrote into the session's guard */
};

struct judge_verdict {
	enum judge_ground ground;
	uint64_t culprit;		    /* session, 0: nobody is blamed */
	uint64_t also[JUDGE_WORDS_MAX - 1]; /* sessions with kernels that faulted at the same time */
	uint32_t also_count;
	bool gone;    /* the guilty session is named and gone: nobody else is guilty, but for the following */
	bool others;  /* kernels faulted as well that nobody can be named for */
	int32_t code; /* CUresult for the culprit, and for those that are hurt */
	uint64_t address, instruction; /* 0: not known */
	char kernel[128];
};

/** Text of a ground for the log. */
const char *judge_ground_text(enum judge_ground ground);

/** True if a session is blamed. */
bool judge_blames(const struct judge_verdict *verdict, uint64_t session);

/** The verdict. Never blames without proof. @sessions: numbers of those that are here */
void judge(const struct judge_evidence *evidence, const uint64_t *sessions, uint32_t count,
	struct judge_verdict *ret_verdict);

#endif
