// See gate.h. A gate is free once it is open and the stream has passed it; then its word counts on.

#include "client/submit/gate.h"

#include <stdbool.h>
#include <stdlib.h>

#include "client/state/host.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"

#define PAGE_BYTES 4096u

struct gate {
	struct gate *next;
	word64 *word;
	uint64_t value; /* of the word, once it is open */
	bool is_open;	/* guarded by the lock, as the rest */
	struct client_stream *stream;
	uint64_t seq; /* of the command that waits */
};

void gate_start(void)
{
	pthread_mutex_init(&session_self()->gates.lock, NULL);
}

/* Under the lock: a gate that was used before. */
static struct gate *find(const struct gates *gates)
{
	struct gate *gate = gates->first;

	while (gate && !(gate->is_open && wait_is_done(gate->stream, gate->seq)))
		gate = gate->next;
	return gate;
}

/* Under the lock. */
static struct gate *make(struct gates *gates)
{
	struct gate *gate = calloc(1, sizeof(*gate));

	if (!gate)
		return NULL;
	gate->word = (word64 *)(uintptr_t)gates->page + gates->page_used++;
	gate->next = gates->first;
	gates->first = gate;
	return gate;
}

/* Return: NULL: there is none, and no word for another one. */
static struct gate *take(struct gates *gates)
{
	struct gate *gate;

	pthread_mutex_lock(&gates->lock);
	gate = find(gates);
	if (!gate && gates->page && gates->page_used < PAGE_BYTES / sizeof(word64))
		gate = make(gates);
	if (gate) {
		gate->is_open = false;
		gate->value++;
	}
	pthread_mutex_unlock(&gates->lock);
	return gate;
}

/* Pinned memory for more words. Without the lock: asks the service. */
static CUresult add_page(struct gates *gates)
{
	struct range range = {.bytes = PAGE_BYTES, .kind = RANGE_BEHIND};
	CUresult r = host_alloc_range(&range);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&gates->lock);
	/* Where another thread was faster, the rest of its page is lost. */
	gates->page = range.address;
	gates->page_used = 0;
	pthread_mutex_unlock(&gates->lock);
	return CUDA_SUCCESS;
}

static CUresult send_wait(struct client_stream *stream, struct gate *gate)
{
	struct submit submit;
	CUresult r = submit_begin(stream, FRMPS_OP_WAIT_VALUE, sizeof(struct frmps_wait_value), &submit);

	if (r != CUDA_SUCCESS)
		return r;
	*(struct frmps_wait_value *)submit.body = (struct frmps_wait_value){
		.address = (uint64_t)(uintptr_t)gate->word,
		.value = gate->value,
		.bytes = 8,
		.flags = CU_STREAM_WAIT_VALUE_GEQ,
	};
	gate->stream = stream;
	gate->seq = submit.seq;
	submit_commit(&submit);
	return CUDA_SUCCESS;
}

CUresult gate_close(struct client_stream *stream, struct gate **ret_gate, uint64_t *ret_seq)
{
	SESSION_SCOPE(stream->session);
	struct gates *gates = &stream->session->gates;
	struct gate *gate = take(gates);
	CUresult r = CUDA_SUCCESS;

	while (!gate && r == CUDA_SUCCESS) {
		r = add_page(gates);
		gate = take(gates);
	}
	if (!gate)
		return r;
	r = send_wait(stream, gate);
	if (r != CUDA_SUCCESS) {
		gate->stream = stream;
		gate->seq = 0;
		gate_open(gate);
		return r;
	}
	*ret_gate = gate;
	*ret_seq = gate->seq;
	return CUDA_SUCCESS;
}

void gate_open(struct gate *gate)
{
	struct gates *gates = &gate->stream->session->gates;

	/* Pairs with the executor's look at the word. */
	word_release(gate->word, gate->value);
	pthread_mutex_lock(&gates->lock);
	gate->is_open = true;
	pthread_mutex_unlock(&gates->lock);
}
