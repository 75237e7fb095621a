// The record of a child (holder/store.h): written by workers_save(), read by adopt/adopt.c.

#ifndef FRMPS_SERVER_WORKER_RECORD_H
#define FRMPS_SERVER_WORKER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/worker/worker.h"

/* The part of struct worker that a record contains as it is. */
#define WORKER_HEAD_BYTES offsetof(struct worker, link)

/* RECORD_WORKER, key: number; followed by the head of struct worker and by the numbers of immovable
 * sessions. */
struct kept_worker {
	uint32_t domain;	/* domain's number; 0: the keeper */
	uint32_t keeper_number; /* of the keeper: its number */
	bool in_step;		/* a standby of which no answer is awaited */
	uint32_t immovable_count;
};

#endif
