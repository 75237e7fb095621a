// The relay: what one session waits for in another. Executors of two devices know nothing of each
// other, so a thread of the library looks at the completion words of the one and acts in the other.
// The first such wait makes the thread; it polls while there is work, at an interval of about 1 %
// of the time waited, and sleeps otherwise.
//
// No task waits for anything else: a task whose session ends, or whose service hangs, delays no
// other. relay_add(): any thread.

#ifndef FRMPS_CLIENT_SUBMIT_RELAY_H
#define FRMPS_CLIENT_SUBMIT_RELAY_H

#include <stdint.h>
#include <sys/queue.h>

#include "protocol/cuda_abi.h"

struct client_stream;

enum relay_step {
	RELAY_WAITS,
	RELAY_MOVES, /* the task has done something, and looks again soon */
	RELAY_ENDS,  /* the task is over, and has freed itself */
};

struct relay_task {
	STAILQ_ENTRY(relay_task) next;
	enum relay_step (*step)(struct relay_task *task); /* on the relay's thread; never waits */
};

/** Gives the relay a task, which its owner does not use any more. Return: CUDA_SUCCESS; errors of
 * helper_start(), and the caller keeps the task */
CUresult relay_add(struct relay_task *task);

/* A command that a task waits for. */
struct relay_point {
	struct client_stream *stream;
	uint64_t seq;
	uint32_t generation; /* of the executor that was asked for a mark; 0: none was */
};

/**
 * Looks at a command, and makes sure that its end becomes visible soon.
 * Return: CUDA_SUCCESS: it is done; CUDA_ERROR_NOT_READY; the sticky error of its session
 */
CUresult relay_look(struct relay_point *point);

#endif
