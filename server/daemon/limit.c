// See limit.h.

#include "server/daemon/limit.h"

#include "protocol/cuda_abi.h"
#include "server/log.h"
#include "server/session/domain.h"
#include "server/daemon/requests.h"
#include "server/standby/move.h"
#include "server/session/session.h"

/* The program waits for the answer and can do nothing else. */
#define LIMIT_MS 60000u

static void refuse(struct request *request, CUresult code, const char *text)
{
	const struct wire_reply reply = {.code = (int32_t)code, .text = text};
	const struct session *session = request->session;

	log_warning("session %llu (process %d, %s) cannot have a limit %u of %llu: %s",
		(unsigned long long)session->number, (int)session->pid, session->program,
		request->message.limit.limit, (unsigned long long)request->message.limit.value, text);
	request_finish(request, &reply);
}

/* request_advance() follows: in its own domain, the session asks its own executor. */
static void on_alone(void *context, int32_t code, const char *text)
{
	struct request *request = context;

	/* During a replacement of the executor: request_advance() tries again with the next
	 * executor. */
	if (code && domain_serving(request->session->domain))
		refuse(request,
			code == CUDA_ERROR_TIMEOUT ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED,
			text);
}

void limit_begin(struct request *request)
{
	struct session *session = request->session;
	const char *obstacle;

	/* The session cannot move yet; request_advance() follows. */
	if (!domain_serving(session->domain) || session->attach.worker)
		return;
	session_changed(session);
	obstacle = move_begin(session, MOVE_LIMIT, "its kernels need larger limits than those of others",
		LIMIT_MS, on_alone, request);
	if (obstacle)
		refuse(request, CUDA_ERROR_NOT_SUPPORTED, obstacle);
}
