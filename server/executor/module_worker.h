// The module thread of an executor, and gaps on behalf of its jobs. Why a thread of its own:
// module_worker.c.

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

/* Modules that wait to be unloaded, of all sessions: with more a client waits for the unloading. */
#define GRAVES_MAX 256u

/* What the module thread is at. It writes; who reads may see parts of two pieces of work. */
struct module_work {
	_Atomic(const char *) what; /* static */
	word64 session;		    /* 0: nobody's, or the executor's own */
	word64 since;		    /* ns; 0: at nothing */
	word64 gate_since;	    /* ns: when it came to the gate; 0: it does not wait there */
};

struct module_worker {
	pthread_t thread;
	struct job_queue queue;
	bool started;

	struct module_work work;

	/* Module thread: modules that are gone for their sessions and wait to be unloaded, oldest
	 * first. */
	struct module *graves, **graves_end;
	uint32_t grave_count;
	uint64_t grave_since; /* ns: of the first */
	uint64_t tried_at;    /* ns: when a gap was last tried for on nobody's behalf */

	/* Module thread, too. */
	struct array_graves array_graves;
	struct object_pool objects;
};

int module_worker_init(struct executor *executor);
/** Finishes the queue and the burials (burial.h), ends the thread. */
void module_worker_deinit(struct executor *executor);
/** Lets the module thread run job->run. Any thread. */
void module_worker_queue(struct job *job);
/** The same for a job that ran already and puts itself off, behind what has come meanwhile. */
void module_worker_queue_again(struct job *job);

/** Lets the module thread look at what it is to do besides its queue. Any thread. */
void module_worker_wake(struct executor *executor);

/**
 * If the module thread has been at one thing for very long, or does not begin what waits for it:
 * says in the log what it is at, and lets the backend say where. Any other thread.
 * @now: ns
 */
void module_worker_tell(struct executor *executor, uint64_t now);

/** The module is out of its session: it is unloaded in a gap, and freed. Module thread. */
void module_worker_bury(struct executor *executor, struct module *module);
/** The same for one that is not in use any more, also not on the device: where its unloading waits
 * for nothing, it is unloaded now. */
void module_worker_end(struct executor *executor, struct module *module);

/** gate_enter(); what waits to be made (cap.c), unloaded or freed comes first in every gap. Module
 * thread, but not in a job that runs while another one waits at the gate. Return: as from
 * gate_enter(), but not GATE_E_WAIT */
int module_worker_enter_gap(struct executor *executor, struct tenant *tenant, uint64_t asked_at);
/**
 * The same for a job that needs a gap, from job->since on. Module thread, in any job.
 * Return: CUDA_SUCCESS: the gap is there; CUDA_ERROR_NOT_READY: there is none now, and the queue
 * has the job again; else what to answer: the session ends.
 */
CUresult module_worker_wait_for_gap(struct job *job);

#endif
