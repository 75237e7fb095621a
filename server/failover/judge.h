// Who is to blame for the loss of an executor. Pure functions over evidence that was collected after the
// executor was reaped; no process is touched, nothing is logged.

#ifndef FRMPS_SERVER_FAILOVER_JUDGE_H
#define FRMPS_SERVER_FAILOVER_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"

/* Kernels that a lost executor can name. */
#define JUDGE_WORDS_MAX LAST_WORDS_MAX

/* What is known about the end. */
struct judge_evidence {
	struct last_words words[JUDGE_WORDS_MAX]; /* private copy; those without magic say nothing */
	bool lost; /* somebody who knows said that the context is lost, with lost_code */
	int32_t lost_code;
	uint64_t lost_address; /* that was accessed, by the same word; 0: not said */
	int exit_signal;       /* 0: it exited */
	bool killed;	       /* we ended it without a fault (a quiesced promotion, a broken protocol) */
	bool asked;	       /* a session's request was with it at its end: a crash may be that one's */
	/* It outlasts faults (on_fault = default; a trial): marks prove nothing about the culprit, so what is in doubt
	 * does not either, and judge_session.in_doubt says who had work on the device at the time of the
	 * fault. */
	bool graceful;
	uint64_t over_limit; /* session whose work runs for longer than it may, else 0 */
	bool suspected;	     /* it had to be killed after a sign of a fault, or was at work on one */
	bool silent; /* that sign was only that it did not answer: nobody's doing, as far as is known */
	bool gone;   /* a session that is gone had work on the device within SHM_SIGN_NS before the sign */
	/* Sessions that were in doubt at the loss before this one, or had worked, if that is unexplained; else 0. */
	uint32_t suspects;
};

/* What became of a suspect of the loss before. */
enum judge_history {
	JUDGE_NO_SUSPECT, /* it was none */
	JUDGE_OPEN,	  /* nothing can be said yet */
	JUDGE_WENT_ON,	  /* all that was in doubt then, and more, is done */
	JUDGE_AGAIN,	  /* nothing of it is done, and all of it is in doubt again */
};

/* A session at that moment. */
struct judge_session {
	uint64_t session;
	bool in_doubt; /* commands that this executor issued for it are not known done; see graceful */
	bool worked;   /* it had work on the device within SHM_SIGN_NS before the first sign: the mark of a
			* kernel that faulted may come before that */
	enum judge_history history;
};

enum judge_ground {
	JUDGE_NO_FAULT,	  /* the executor ended without a sign of a fault of a kernel */
	JUDGE_UNKNOWN,	  /* a fault, and no proof of whose */
	JUDGE_LAST_WORDS, /* the executor named the session */
	JUDGE_ONLY_ONE,	  /* only one session had work on the device, or had shortly before */
	JUDGE_OVER_LIMIT, /* no fault: work that runs for longer than it may */
	JUDGE_LEFT_OVER, /* of all suspects of the loss before, the only one that did not get through since */
	JUDGE_GUARD,	 /* no fault: a guard was written to while only this session had kernels */
	JUDGE_PROBATION, /* a fault again when commands that were in doubt at one ran alone (probation.h) */
};

struct judge_verdict {
	enum judge_ground ground;
	uint64_t culprit;		    /* session, 0: nobody is blamed */
	uint64_t also[JUDGE_WORDS_MAX - 1]; /* whose kernels faulted at the same time */
	uint32_t also_count;
	bool gone;    /* the guilty session is named and gone: nobody else did it, but for the following */
	bool others;  /* kernels faulted as well that nobody can be named for */
	int32_t code; /* CUresult for the culprit, and for those that are hurt */
	uint64_t seq;
	uint32_t stream;
	uint64_t address, instruction; /* 0: not known */
	char kernel[128];
};

/** Text of a ground for the log. */
const char *judge_ground_text(enum judge_ground ground);

/** Whether a process that this signal ended has crashed. */
bool judge_is_crash(int signal);

/** Whether a session is blamed. */
bool judge_blames(const struct judge_verdict *verdict, uint64_t session);

/** The verdict. Never blames without proof. */
void judge(const struct judge_evidence *evidence, const struct judge_session *sessions, uint32_t count,
	struct judge_verdict *ret_verdict);

#endif
