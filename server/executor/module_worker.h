// The module thread of an executor, and gaps on behalf of its jobs. module_worker.c explains the
// need for this thread.

#ifndef FRMPS_SERVER_EXECUTOR_MODULE_WORKER_H
#define FRMPS_SERVER_EXECUTOR_MODULE_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/executor/array.h"
#include "server/executor/job_queue.h"
#include "server/executor/object.h"
#include "shm/order.h"

struct executor;
struct module;
struct tenant;

/* Modules of all sessions that may wait to be unloaded: beyond, a client waits for the unload. */
#define RECLAIM_MAX 256u

/* The present work of the module thread, which writes; a reader may see parts of two pieces of
 * work. */
struct module_work {
	_Atomic(const char *) what; /* static */
	word64 session;		    /* 0: of no session */
	word64 since;		    /* ns; 0: no work */
	word64 gate_since;	    /* ns: begin of the wait at the gate; 0: none */
};

struct module_worker {
	pthread_t thread;
	struct job_queue queue;
	bool started;

	struct module_work work;

	/* Module thread: the reclaim list: modules that their sessions have unloaded and that wait
	 * for the driver's unload, oldest first. */
	struct module *reclaim, **reclaim_end;
	uint32_t reclaim_count;
	uint64_t reclaim_since; /* ns: of the first */
	uint64_t tried_at;	/* ns: the latest try for a gap for deferred work */

	/* Module thread, too. */
	struct array_reclaim array_reclaim;
	struct object_pool objects;
};

int module_worker_init(struct executor *executor);
/** Finishes the queue and the deferred frees (deferred.h), ends the thread. */
void module_worker_deinit(struct executor *executor);
/** Lets the module thread run the job by `handle`. Any thread. */
void module_worker_queue(struct job *job, void (*handle)(struct job *job));
/** The same for a job that ran already and puts itself off, behind newer jobs. */
void module_worker_queue_again(struct job *job);

/** Lets the module thread look at its work besides the queue. Any thread. */
void module_worker_wake(struct executor *executor);

/**
 * If the module thread's present work takes very long, or the thread does not begin waiting jobs:
 * logs the present work, and lets the backend log the place. Any other thread.
 * @now: ns
 */
void module_worker_tell(struct executor *executor, uint64_t now);

/** Queues a module without a session to be unloaded in a gap, and freed. Module thread. */
void module_worker_reclaim(struct executor *executor, struct module *module);
/** The same for a module that is not in use any more, also not on the device: unloads it now if the
 * driver would not wait. */
void module_worker_end(struct executor *executor, struct module *module);

/** gate_enter(); deferred groups (cap.c), unloads and frees come first in every gap. Module thread,
 * but not in a job that runs while another job waits at the gate. Return: as from gate_enter(), but
 * not GATE_E_WAIT */
int module_worker_enter_gap(struct executor *executor, struct tenant *tenant, uint64_t asked_at);
/**
 * The same for a job that needs a gap, from job->since on. Module thread, in any job.
 * Return: CUDA_SUCCESS: the gap is there; CUDA_ERROR_NOT_READY: no gap now, and the queue has the
 * job again; else the code to answer: the session ends.
 */
CUresult module_worker_wait_for_gap(struct job *job);

#endif
