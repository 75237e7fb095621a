// Work that does not end.
//
//   over max_kernel_seconds (time_limit.c)      EndKernels to the active executor, which reports
//                                            CUDA_ERROR_LAUNCH_TIMEOUT to the program at once and
//                                            ends the program's kernels
//   of a program that is gone                CloseSession: the executor ends the kernels by itself
//                                            behind orphan_seconds (session_close.c), and says so
//
//   endless_over_limit() ── EndKernels ──► answered: done ──────────────────► report
//                                          answered: waits for others ────────► time begins anew
//                                          answered: cannot be ended ─────┐
//                                          no answer within ANSWER_MS ────┴───► promote_over_limit()
//
// The daemon looks at a program that has its error, or that of a fault, until the program's work is
// over, however long the program stays. An executor is asked once for a session; after a failure
// the daemon tries the replacement until it is possible. A program that has its error may be gone
// by then: where the executor cannot be replaced yet, CloseSession finds the work once more. The
// next executor is asked anew, as is any executor by a daemon that has come back. An executor that
// dies meanwhile is replaced anyway, and the program's policy decides about work in flight. A fault
// of the program that is handled first becomes the reason of the program's error.

#include "server/fault/endless.h"

#include <stdio.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/fault/evidence.h"
#include "server/fault/promote.h"
#include "server/fault/verdict.h"
#include "server/incident/incident.h"
#include "server/incident/session_evidence.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/fault_history.h"
#include "server/session/session.h"
#include "server/session/userlog.h"
#include "server/worker/worker.h"

/* Ten tries of a tenth of a second (executor/end_kernels.c), and several times as much on a machine
 * that is busy. */
#define ANSWER_MS 5000u

/* Another error of the session is that of a fault, which came first. */
static bool is_timeout(const struct session *session)
{
	const struct shm_server_header *server = session->view.server;

	return word_acquire(&server->state) == SHM_SESSION_FAULTED &&
	       word_acquire(&server->error) == CUDA_ERROR_LAUNCH_TIMEOUT;
}

static void report(struct domain *domain, const struct session *session, const char *kernel)
{
	struct daemon *daemon = domain->daemon;

	daemon->counters.culprits++;
	daemon->counters.kernels_ended++;
	fault_history_note(daemon, session);
	userlog_event(daemon, session->uid, USERLOG_endless, LOG_LEVEL_WARNING,
		"work of process %d (%s) has been on the device for longer than max_kernel_seconds (%llu): "
		"its kernels were ended, and every other program goes on",
		(int)session->pid, session->program, (unsigned long long)daemon->config->max_kernel_seconds);
	verdict_over_limit(domain, session, kernel, timer_now_us() - session->evidence.endless.asked_us);
}

/* None of the session's kernels is on the device, where its work waits for kernels of others; or
 * the session had faulted before, and the rest of its work is over. */
static void begin_anew(struct session *session)
{
	log_debug("work of session %llu waited for that of others, or was ended behind its fault, for longer "
		  "than max_kernel_seconds",
		(unsigned long long)session->number);
	session->evidence.endless = (struct session_endless){0};
	session_evidence_forget_looks(&session->evidence);
}

/* The program was looked at as it ended, and had no error. */
static bool has_left(const struct session *session, const struct wire_reply *reply)
{
	return reply->code == CUDA_ERROR_INVALID_CONTEXT && !session_is_live(session);
}

static void on_ended(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct session *session = context;
	struct domain *domain = session->domain;

	(void)packet;
	if (reply && worker == domain->active && worker->generation == session->evidence.endless.generation) {
		session->evidence.endless.is_open = false;
		if (!reply->code && is_timeout(session))
			report(domain, session, reply->text);
		else if (!reply->code)
			begin_anew(session);
		else if (!domain_worker_is_failing(worker) && !has_left(session, reply))
			promote_over_limit(domain, session);
	}
	session_unref(session);
}

static void ask(struct domain *domain, struct session *session)
{
	struct wire_message message = {.type = WIRE_END_KERNELS, .session = session->number};
	char reason[128];

	snprintf(reason, sizeof(reason),
		"its work was on the device for longer than max_kernel_seconds (%llu)",
		(unsigned long long)domain->daemon->config->max_kernel_seconds);
	message.trouble = (struct wire_trouble){.code = CUDA_ERROR_LAUNCH_TIMEOUT, .text = reason};
	session->evidence.endless = (struct session_endless){
		.generation = domain->active->generation, .asked_us = timer_now_us(), .is_open = true};
	worker_request(domain->active, &message, NULL, 0, on_ended, session_ref(session));
}

void endless_over_limit(struct domain *domain, struct session *session)
{
	const struct session_endless *endless = &session->evidence.endless;

	if (!incident_is_serving(domain->promotion.state))
		return;
	if (endless->generation != domain->active->generation)
		ask(domain, session);
	else if (!endless->is_open || timer_now_us() >= endless->asked_us + ANSWER_MS * UINT64_C(1000))
		promote_over_limit(domain, session);
}

void endless_report_orphan(struct domain *domain, const struct session *session)
{
	domain->daemon->counters.kernels_ended++;
	userlog_event(domain->daemon, session->uid, USERLOG_endless, LOG_LEVEL_WARNING,
		"work of process %d (%s), which is gone, did not end within orphan_seconds: its kernels were "
		"ended, and every other program goes on",
		(int)session->pid, session->program);
	verdict_orphan(domain, session);
}
