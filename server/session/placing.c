// See placing.h.

#include "server/session/placing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/request.h"
#include "server/session/rooms.h"
#include "server/session/session.h"

/* Commands that began within this are the same one: how exactly that is known. */
#define SAME_WORK_US 1000000u

static bool is_late(const struct request *request)
{
	return timer_now_us() - request->refused_us >= request->session->daemon->config->load_place_ms * 1000;
}

static void refuse_load(struct request *request)
{
	struct wire_reply *reply = calloc(1, sizeof(*reply));

	log_bug_on(!reply);
	reply->code = CUDA_ERROR_SYSTEM_NOT_READY;
	reply->text = request->refusal ? request->refusal : "";
	userlog_event(request->session->daemon, request->session->uid, USERLOG_code, LOG_LEVEL_WARNING,
		"session %llu (process %d, %s) cannot load its code: %s",
		(unsigned long long)request->session->number, (int)request->session->pid,
		request->session->program, reply->text);
	request_finish(request, reply);
	free(reply);
}

/* request_advance() comes behind this: the request goes to the executor that its session has
 * then. */
static void on_placed(void *context, int32_t code, const char *text)
{
	struct request *request = context;

	(void)text;
	if (code && domain_serving(request->session->domain) && is_late(request))
		refuse_load(request);
}

/* Why it needs a domain of its own. */
static void describe_runner(
	const struct session *session, const struct wire_u64s *values, char *text, size_t size)
{
	const char *program = "another program";
	const struct session *runner;

	TAILQ_FOREACH (runner, &session->domain->sessions, domain_link)
		if (values->count && runner->number == values->at[0])
			program = runner->program;
	if (values->count > 1)
		snprintf(text, size, "code cannot be loaded beside a kernel of %.80s that runs for %.1f s",
			program, (double)values->at[1] / 1000.0);
	else
		snprintf(text, size, "code cannot be loaded beside what runs on the GPU");
}

/* The same work as at the latest refusal, by when it began. Answers are late by what a message
 * takes. */
static bool is_same_work(const struct session_refusal *refusal, uint64_t runner, uint64_t began_us)
{
	uint64_t apart =
		began_us > refusal->began_us ? began_us - refusal->began_us : refusal->began_us - began_us;

	return refusal->since_us && runner == refusal->runner && apart < SAME_WORK_US;
}

/* The first time that this request is refused. A session has load_place_ms beside the same work of
 * somebody else, not for each of its loads. */
static void note_runner(struct request *request, const struct wire_u64s *values)
{
	struct session_refusal *refusal = &request->session->refusal;
	uint64_t now_us = timer_now_us(), runner = values->count ? values->at[0] : 0;
	uint64_t began_us = now_us - (values->count > 1 ? values->at[1] * 1000 : 0);

	if (!is_same_work(refusal, runner, began_us))
		*refusal = (struct session_refusal){.runner = runner,
			.since_us = now_us,
			.obstacle = refusal->obstacle,
			.stuck = refusal->stuck};
	refusal->began_us = began_us;
	request->refused_us = refusal->since_us;
}

static void tell_obstacle(struct session *session, const char *obstacle)
{
	/* It tries again and again: that is said once. */
	if (session->refusal.obstacle && !strcmp(session->refusal.obstacle, obstacle))
		return;
	session->refusal.obstacle = obstacle;
	userlog_event(session->daemon, session->uid, USERLOG_code, LOG_LEVEL_INFO,
		"session %llu (process %d, %s) cannot have an executor of its own: %s",
		(unsigned long long)session->number, (int)session->pid, session->program, obstacle);
}

/* The session goes on in an executor of its own, or tries again for a while where that cannot be.
 * When its time is over, a load gets one move more, for what was in the way may be over as well. */
void placing_begin(struct request *request, const struct wire_reply *reply)
{
	struct session *session = request->session;
	uint64_t limit_ms = session->daemon->config->load_place_ms;
	bool is_first = !request->refused_us;
	const char *obstacle;
	char why[160];

	if (is_first)
		note_runner(request, &reply->values);
	free(request->refusal);
	request->refusal = strdup(reply->text);
	if (!limit_ms || (is_late(request) && !is_first)) {
		refuse_load(request);
		return;
	}
	/* It is with nobody now: another daemon must not wait for this answer again. */
	session_keep(session);
	describe_runner(session, &reply->values, why, sizeof(why));
	obstacle = session->daemon->standby_room->begin_move(
		session, MOVE_LOAD, why, limit_ms, on_placed, request);
	if (!obstacle)
		return;
	tell_obstacle(session, obstacle);
	if (is_late(request))
		refuse_load(request);
	else
		request_advance(request);
}

/*
 * Limits
 */

/* A program that is waiting for it cannot do anything else. */
#define LIMIT_MS 60000u

static void refuse_limit(struct request *request, CUresult code, const char *text)
{
	const struct wire_reply reply = {.code = (int32_t)code, .text = text};
	const struct session *session = request->session;

	log_warning("session %llu (process %d, %s) cannot have a limit %u of %llu: %s",
		(unsigned long long)session->number, (int)session->pid, session->program,
		request->message.limit.limit, (unsigned long long)request->message.limit.value, text);
	request_finish(request, &reply);
}

/* request_advance() comes behind this: with an executor of its own, that one is asked. */
static void on_alone(void *context, int32_t code, const char *text)
{
	struct request *request = context;

	/* While its executor is replaced: tried again when there is one. */
	if (code && domain_serving(request->session->domain))
		refuse_limit(request,
			code == CUDA_ERROR_TIMEOUT ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED,
			text);
}

void placing_begin_limit(struct request *request)
{
	struct session *session = request->session;
	const char *obstacle;

	/* It cannot move yet; request_advance() follows. */
	if (!domain_serving(session->domain) || session->attach.worker)
		return;
	session_keep(session);
	obstacle = session->daemon->standby_room->begin_move(session, MOVE_LIMIT,
		"its kernels need larger limits than those of others", LIMIT_MS, on_alone, request);
	if (obstacle)
		refuse_limit(request, CUDA_ERROR_NOT_SUPPORTED, obstacle);
}
