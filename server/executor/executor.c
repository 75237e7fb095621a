// Functions for every file of the executor: messages to the daemon, tenants by number, and the
// check of backend results for a lost context. Any thread, but where executor.h says otherwise.

#include "server/executor/executor.h"

#include "server/executor/lost.h"
#include "server/executor/tenant.h"
#include "server/log.h"

static int send_locked(struct executor *executor, const struct wire_message *message)
{
	size_t length;

	if (wire_encode_in(&executor->room, message, executor->outgoing, sizeof(executor->outgoing), &length))
		return PACKET_E_INVALID;
	return outbox_send(executor, executor->outgoing, length);
}

void executor_send(struct executor *executor, const struct wire_message *message)
{
	struct wire_message refusal = {.type = WIRE_REPLY, .id = message->id, .session = message->session};
	int error;

	pthread_mutex_lock(&executor->control_lock);
	error = send_locked(executor, message);
	/* The daemon waits for an answer. */
	if (error == PACKET_E_INVALID && message->type == WIRE_REPLY) {
		refusal.reply.code = CUDA_ERROR_NOT_SUPPORTED;
		refusal.reply.text = "the answer does not fit a message";
		error = send_locked(executor, &refusal);
	}
	pthread_mutex_unlock(&executor->control_lock);
	if (error == OUTBOX_E_KEPT)
		job_board_kick(&executor->board);
	else if (error && error != PACKET_E_CLOSED)
		log_error("cannot send %s: error %d", wire_type_name(message->type), error);
}

CUresult executor_code(struct executor *executor, CUresult code)
{
	if (code && backend_is_fatal(code))
		lost_report(executor, code);
	return code;
}

struct tenant *executor_tenant(struct executor *executor, uint64_t id)
{
	struct tenant *tenant;

	TAILQ_FOREACH (tenant, &executor->tenants, link)
		if (tenant->id == id)
			return tenant;
	return NULL;
}
