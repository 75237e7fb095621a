// See bounce.h. The host function that ends a copy runs on the service thread and must not ask the
// service, so it only puts the memory on a list; the program's threads free the memory.

#include "client/stage/bounce.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "client/state/host.h"
#include "client/state/ranges.h"
#include "client/submit/callback.h"

struct bounce {
	struct bounce *next; /* on the list of finished copies */
	struct box box;	     /* the processor's half */
	uint64_t memory;
};

static _Atomic(struct bounce *) over;

static void put_over(void *user)
{
	struct bounce *one = user;
	struct bounce *head = atomic_load_explicit(&over, memory_order_relaxed);

	do
		one->next = head;
	while (!atomic_compare_exchange_weak(&over, &head, one));
}

static void fetch(void *user)
{
	box_copy_in(&((struct bounce *)user)->box);
}

static void deliver(void *user)
{
	box_copy_out(&((struct bounce *)user)->box);
	put_over(user);
}

void bounce_settle(void)
{
	struct bounce *one;

	if (!atomic_load_explicit(&over, memory_order_relaxed))
		return;
	one = atomic_exchange(&over, NULL);
	while (one) {
		struct bounce *next = one->next;

		host_free_range(one->memory, RANGE_BEHIND);
		free(one);
		one = next;
	}
}

static struct box_side packed(const struct box *box, uint64_t memory)
{
	return (struct box_side){.address = memory, .pitch = box->width, .rows = box->height};
}

static CUresult prepare(const struct box *box, struct bounce **ret_one)
{
	struct range memory = {.kind = RANGE_BEHIND};
	struct bounce *one;
	CUresult r;

	if (__builtin_mul_overflow(box->width, box->height, &memory.bytes) ||
		__builtin_mul_overflow(memory.bytes, box->depth, &memory.bytes))
		return CUDA_ERROR_INVALID_VALUE;
	one = malloc(sizeof(*one));
	if (!one)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = host_alloc_range(&memory);
	if (r != CUDA_SUCCESS) {
		free(one);
		return r;
	}
	*one = (struct bounce){.box = *box, .memory = memory.address};
	*ret_one = one;
	return CUDA_SUCCESS;
}

CUresult bounce(const struct box *box, struct client_stream *stream, bool to_device, bounce_copy *copy)
{
	struct box device = *box;
	struct bounce *one;
	CUresult r;

	bounce_settle();
	r = prepare(box, &one);
	if (r != CUDA_SUCCESS)
		return r;
	if (to_device) {
		one->box.dst = device.src = packed(box, one->memory);
		r = callback_own_function(stream, fetch, one);
		if (r == CUDA_SUCCESS)
			r = copy(&device, stream, true);
		if (r == CUDA_SUCCESS)
			r = callback_own_function(stream, put_over, one);
	} else {
		one->box.src = device.dst = packed(box, one->memory);
		r = copy(&device, stream, false);
		if (r == CUDA_SUCCESS)
			r = callback_own_function(stream, deliver, one);
	}
	/* After an error a part of the copy may be in flight: the memory is never reused. */
	return r;
}
