// A job: one control message on its way through the executor, and the board where jobs are parked
// that must wait for something. A job belongs to exactly one place at a time: the code that handles
// the job, the queue of the module thread, or the board. A job ends with job_reply() or job_free().
//
// The main thread owns the board and looks at every parked job in turn (job_board_step); other
// threads park jobs there with job_park(). While jobs are parked the main thread looks at an
// interval of 1 % of the time waited, 20 µs to 1 ms, so that a short wait costs little time and a
// long wait little processor.

#ifndef FRMPS_SERVER_EXECUTOR_JOB_H
#define FRMPS_SERVER_EXECUTOR_JOB_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "server/backend/backend.h"

struct end_kernels;
struct executor;
struct load;
struct tenant;
struct job;

/* Outcomes of a step. */
#define JOB_E_WAIT 1 /* look again later */

struct job {
	TAILQ_ENTRY(job) link;
	struct executor *executor;
	struct tenant *tenant;	       /* a reference, or NULL */
	void (*run)(struct job *job);  /* on the module thread */
	int (*step)(struct job *job);  /* while parked: 0 (job gone) or JOB_E_WAIT */
	void (*then)(struct job *job); /* called at the end of a drain */
	uint64_t since, deadline;      /* ns; deadline 0: none */
	uint64_t place, not_before;    /* job_queue.h; ns: end of the rest */
	uint64_t ticket;	       /* drain.c */
	uint64_t *snapshot;	       /* drain.c: of `snapshots` streams, own memory */
	uint32_t snapshots;
	bool drained;
	bool needs_gap;		       /* module_worker.c: a try without has failed */
	bool answered;		       /* no answer is expected any more */
	struct load *load;	       /* load.c: own memory */
	struct end_kernels *end;       /* end_kernels.c: own memory */
	void (*drop)(struct job *job); /* frees load or end; or NULL */
	uint32_t mark;		       /* free for the handler */
	struct wire_message message;   /* points into packet */
	struct packet packet;
};
TAILQ_HEAD(job_list, job);

struct job_board {
	pthread_mutex_t lock; /* of arrivals */
	struct job_list arrivals;
	struct job_list parked; /* main thread only */
	int kick;		/* eventfd: arrivals, or an event that a parked job waits for */
};

/** A job with an empty packet. NULL when out of memory. */
struct job *job_new(struct executor *executor);
/** Closes remaining descriptors, drops the tenant. Takes NULL. */
struct job *job_free(struct job *job);

/** Answers and frees. values and text may be NULL. Any thread. Nothing is sent once the context is
 * lost. */
void job_reply(struct job *job, CUresult code, const uint64_t *values, uint32_t count, const char *text);
/** The same for any Reply body. */
void job_reply_with(struct job *job, const struct wire_reply *reply);

/** Answers now; a later answer is not sent. */
void job_answer_early(struct job *job, CUresult code);

int job_board_init(struct job_board *board);
void job_board_deinit(struct job_board *board);

/** Parks a job: the main thread looks at it by `step`. Any thread. */
void job_park(struct job *job, int (*step)(struct job *job));
/** Lets the main thread look now. Any thread. */
void job_board_kick(struct job_board *board);
/** Steps all parked jobs once. Return: microseconds until the next call, -1 if no job is left. */
int64_t job_board_step(struct job_board *board, uint64_t now);

#endif
