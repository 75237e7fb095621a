// The executor role: the process that owns the context of a domain and serves its clients' rings.
//
//   main thread      reads control messages in order; memory and sessions; promotions. Never waits
//                    for the device: jobs that must wait for a session's work are parked (job.h)
//                    and looked at again
//   module thread    modules, functions, timing, unpinning: calls that the driver may hold up
//                    (module_worker.c)
//   a thread for each call that ends kernels (end_kernels.c), for milliseconds
//   carriers         memory of sessions to files and back; from the first such request on (carry.c)
//   serving threads  rings and all steps of a command; a session belongs to one serving thread
//                    (serve.c)
//
// A command: ring → intake.c (copied into the journal, checked) → dispatch.c (given to the backend)
// or hold.c (waits in software) → retire.c (marks, completion).

#ifndef FRMPS_SERVER_EXECUTOR_EXECUTOR_H
#define FRMPS_SERVER_EXECUTOR_EXECUTOR_H

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/backend/backend.h"
#include "server/executor/canary.h"
#include "server/executor/cap.h"
#include "server/executor/carry.h"
#include "server/executor/contain.h"
#include "server/executor/deferred.h"
#include "server/executor/gate.h"
#include "server/executor/job.h"
#include "server/executor/module_worker.h"
#include "server/executor/outbox.h"
#include "server/executor/serve.h"
#include "server/executor/share.h"
#include "server/executor/stash.h"
#include "server/executor/guard_watch.h"
#include "server/executor/variable.h"
#include "shm/order.h"

struct tenant;
TAILQ_HEAD(tenant_list, tenant);

/* Words of registered memory that the device writes and threads poll: one per session (hold.c); the
 * first word is the canary's. */
#define EXECUTOR_SCRATCH_WORDS 512u

/* No code of the driver. */
#define EXECUTOR_HALTED UINT32_MAX

struct executor {
	/* Serving threads read this line for every command, so the line has no word that is written
	 * often. */
	_Alignas(SHM_LINE) const struct backend_ops *ops;
	/* Not zero once nothing is issued any more: EXECUTOR_HALTED (halt.c), or the code that the
	 * context was lost with (lost.c). Every thread looks at the word before a call of the
	 * backend. */
	word32 lost;
	word32 sharing;	  /* not 0: shares of the device are counted (share.c). Looked at in each turn */
	struct gate gate; /* looked at before each command as well */

	/* ns: when the driver last said that the context is well (sentry.c). Serving threads write
	 * the word with each mark. */
	_Alignas(SHM_LINE) word64 heard_at;

	_Alignas(SHM_LINE) struct backend_device device;
	bool fenced;   /* the process is off the device (halt.c); main thread */
	uint32_t user; /* user id of the process; 0: as at the start (open.c). Main thread */
	int control_fd;
	pthread_mutex_t control_lock; /* of sending */
	/* Under control_lock. Lets messages be sent even without free memory. */
	struct wire_room room;
	uint8_t outgoing[WIRE_PACKET_MAX];
	struct outbox outbox;
	uint64_t latest_request; /* number of the latest request; main thread */
	bool lacks_memory;	 /* for the next message; main thread */
	struct deferred_frees deferred;

	pthread_mutex_t tenants_lock; /* of the list; only the main thread changes it */
	struct tenant_list tenants;

	pthread_mutex_t ends_lock; /* of the words that notify clients of their end; a leaf */

	uint64_t *scratch;				    /* EXECUTOR_SCRATCH_WORDS, registered */
	uint64_t scratch_used[EXECUTOR_SCRATCH_WORDS / 64]; /* under tenants_lock */

	struct guard_watch guard_watch;
	struct variable_path variables;
	struct canary canary;
	struct contain contain;

	struct job_board board;
	struct module_worker modules;
	struct serve_pool pool;
	struct carriers carriers;
	struct stash_parts stash;
	struct shares shares;
	struct caps caps;
};

static_assert(offsetof(struct executor, gate.word) / SHM_LINE == 0, "one line is read for every command");
static_assert(offsetof(struct executor, device) - offsetof(struct executor, heard_at) == SHM_LINE,
	"a line of its own for what all write");

/**
 * Runs the role until the daemon hangs up or sends Shutdown.
 * @ops: the backend, not opened yet
 * @control_fd: SOCK_SEQPACKET to the daemon
 * @words_fd: memfd for last words, or -1
 * Return: the process's exit status.
 */
int executor_main(const struct backend_ops *ops, int device, int control_fd, int words_fd);

/** For executor_main() and tests: everything but the main loop. Return: 0 or -errno. */
int executor_init(struct executor *executor, const struct backend_ops *ops, int control_fd, unsigned threads);
void executor_deinit(struct executor *executor);

/** Handles one control message; the job is consumed. Main thread. Return: 0, or
 * EXECUTOR_E_SHUTDOWN. */
#define EXECUTOR_E_SHUTDOWN 1
int executor_handle(struct executor *executor, struct job *job);

/** Sends a message to the daemon; no descriptor ever goes with one. Any thread. */
void executor_send(struct executor *executor, const struct wire_message *message);

/** Finds the tenant of a session by its number. Main thread. NULL if there is none. */
struct tenant *executor_tenant(struct executor *executor, uint64_t id);

/** Passes a backend result on; reports a lost context. Any thread. */
CUresult executor_code(struct executor *executor, CUresult code);

static inline int executor_is_lost(const struct executor *executor)
{
	return word_relaxed(&executor->lost) != 0;
}

/** Return: true if the executor was halted and its context is not known to be lost. */
static inline int executor_is_halted(const struct executor *executor)
{
	return word_relaxed(&executor->lost) == EXECUTOR_HALTED;
}

#endif
