// See evidence.h.

#include "server/fault/evidence.h"

#include <stdlib.h>

#include "protocol/cuda_abi.h"
#include "server/fault/kernel_log.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/worker/words.h"
#include "server/worker/worker.h"

/* How long the driver may take from its line in the kernel log to its report to the executor: the
 * driver reads a device that is full of warps first (4.8 s at most were seen). */
#define REPORT_US 5000000u

static struct worker_evidence *make(struct worker *worker)
{
	if (!worker->evidence)
		worker->evidence = calloc(1, sizeof(*worker->evidence));
	log_bug_on(!worker->evidence); /* forgetting would lose evidence */
	return worker->evidence;
}

const struct worker_evidence *evidence_of(const struct worker *worker)
{
	static const struct worker_evidence nothing;

	return worker->evidence ? worker->evidence : &nothing;
}

void evidence_drop(struct worker *worker)
{
	free(worker->evidence);
	worker->evidence = NULL;
}

bool evidence_is_reported(const struct worker *worker)
{
	uint64_t reported_us = evidence_of(worker)->reported_us;

	return reported_us && timer_now_us() - reported_us < REPORT_US;
}

static void forget_testimony(struct worker_evidence *evidence)
{
	*evidence = (struct worker_evidence){.lost_us = evidence->lost_us};
}

static void remember(struct worker *worker, const struct xid *xid)
{
	struct worker_evidence *evidence = make(worker);

	if (!evidence_is_reported(worker))
		forget_testimony(evidence);
	evidence->reported_us = timer_now_us();
	/* CUDA_ERROR_LAUNCH_FAILED is less specific than any other code. */
	if (!evidence->reported_code || evidence->reported_code == CUDA_ERROR_LAUNCH_FAILED)
		evidence->reported_code = xid->code;
	if (xid->address)
		evidence->reported_address = xid->address;
}

void evidence_take_xid(struct worker *worker, const struct xid *xid)
{
	if (worker->state == WORKER_TERMINATING)
		return;
	if (worker->state != WORKER_ACTIVE) {
		/* This worker runs nothing of a session. If it cannot go on, it dies or sends
		 * Lost. */
		log_info("executor %d (%s) serves nobody and goes on: %s", (int)worker->pid,
			worker_state_name(worker->state), xid->text);
		return;
	}
	/* The executor sees the exception, or the driver's error, and reports it. */
	remember(worker, xid);
	log_info("a sign that executor %d has a fault, no proof: %s", (int)worker->pid, xid->text);
}

void evidence_take_lost(struct worker *worker)
{
	make(worker)->lost_us = timer_now_us();
}

void evidence_settle(struct worker *worker, uint32_t number)
{
	words_settle(worker, number);
	if (worker->evidence)
		forget_testimony(worker->evidence);
}
