// See crossing.h.

#include "client/submit/crossing.h"

#include <stdlib.h>

#include "client/state/process.h"
#include "client/state/session.h"
#include "client/submit/gate.h"
#include "client/submit/relay.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"

struct crossing {
	struct relay_task task; /* first: the relay hands it back */
	const struct crossing_source *source;
	void *context;
	struct session *waits;
	struct gate *gate;
};

static enum relay_step step(struct relay_task *task)
{
	struct crossing *crossing = (struct crossing *)task;
	CUresult r = crossing->source->look(crossing->context);

	/* Nobody waits any more. */
	if (process_session_error(crossing->waits) != CUDA_SUCCESS)
		r = CUDA_SUCCESS;
	if (r == CUDA_ERROR_NOT_READY)
		return RELAY_WAITS;
	if (r != CUDA_SUCCESS)
		wait_note_error(crossing->waits, r);
	gate_open(crossing->gate);
	crossing->source->end(crossing->context);
	free(crossing);
	return RELAY_ENDS;
}

CUresult crossing_wait_for(struct client_stream *stream, const struct crossing_source *source, void *context)
{
	struct crossing *crossing = malloc(sizeof(*crossing));
	uint64_t unused;
	CUresult r;

	if (!crossing)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*crossing = (struct crossing){
		.task = {.step = step}, .source = source, .context = context, .waits = stream->session};
	r = gate_close(stream, &crossing->gate, &unused);
	if (r != CUDA_SUCCESS) {
		free(crossing);
		return r;
	}
	r = relay_add(&crossing->task);
	if (r != CUDA_SUCCESS) {
		gate_open(crossing->gate);
		free(crossing);
	}
	return r;
}

static CUresult look(void *context)
{
	return relay_look(context);
}

static const struct crossing_source commands = {look, free};

CUresult crossing_wait(struct client_stream *stream, struct client_stream *other, uint64_t seq)
{
	struct relay_point *point = malloc(sizeof(*point));
	CUresult r;

	if (!point)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*point = (struct relay_point){other, seq, 0};
	r = crossing_wait_for(stream, &commands, point);
	if (r != CUDA_SUCCESS)
		free(point);
	return r;
}

CUresult crossing_await(struct client_stream *stream, struct client_stream *other, uint64_t seq)
{
	struct submit submit;
	CUresult r;

	if (!other || other == stream || wait_is_done(other, seq))
		return CUDA_SUCCESS;
	if (other->session != stream->session)
		return crossing_wait(stream, other, seq);
	r = submit_begin(stream, FRMPS_OP_DEPEND, sizeof(struct frmps_depend), &submit);
	if (r != CUDA_SUCCESS)
		return r;
	*(struct frmps_depend *)submit.body =
		(struct frmps_depend){.seq = seq, .stream = other->slot, .event = FRMPS_NO_EVENT};
	submit_commit(&submit);
	return CUDA_SUCCESS;
}
