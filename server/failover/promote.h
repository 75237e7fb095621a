// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// A domain's way from the loss of its active executor to the next one. State diagram and rules: promote.c.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAILOVER_PROMOTE_H
#define FRMPS_SERVER_FAILOVER_PROMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/failover/judge.h"

struct domain;
struct client;
struct timer;
struct worker;

enum promote_state {
	PROMOTE_WAITING,    /* no active executor; the next standby that is warm becomes it */
	PROMOTE_ACTIVATING, /* Activate was sent to domain->active */
	PROMOTE_STEADY,	    /* domain->active serves */
	PROMOTE_QUIESCING,  /* it is to be replaced: sessions held, their issued work ends */
	PROMOTE_FENCING,    /* it is killed, not reaped yet: its work may still write */
};

struct promotion {
	enum promote_state state;
	uint32_t generation; /* the latest given out */
	bool lost_one;	     /* an executor was lost since the latest resume: there is something to report */
	struct judge_verdict verdict;
	char verdict_text[1536]; /* the latest, in words; empty before the first */
	uint64_t losses;	 /* of active executors */
	uint32_t suspects;	 /* sessions in doubt at the latest loss if that is unexplained, else 0 */
	/* About the culprit, kept because it may be gone when the promotion is over. */
	int culprit_pid;
	char culprit_program[64];
	uint64_t detected_us, fenced_us, judged_us, activate_us;
	/* Quiesced promotion. */
	struct timer *quiesce_timer;
	uint64_t quiesce_until_us;
	bool quiesced; /* this promotion is one */
	bool orphan;   /* work of a gone client runs in the active executor and does not end */
};

const char *promote_state_name(enum promote_state state);

/** Return: 0 or -ENOMEM. */
int promote_init(struct domain *domain);
void promote_deinit(struct domain *domain);

/** A worker of the domain was condemned; if it is the active one, its sessions are held. */
void promote_detect(struct domain *domain, struct worker *worker);
/** A worker of the domain was reaped and is no longer in its list. */
void promote_fenced(struct domain *domain, struct worker *worker);
/** A standby knows everything. */
void promote_warm(struct domain *domain, struct worker *worker);
/** Work of a client that is gone does not end: replace the active executor as soon as a standby is warm. */
void promote_orphan(struct domain *domain, const struct client *client);

#endif
