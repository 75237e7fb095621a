// Requests of a dead daemon without an answer are sent again, with their old numbers and in their
// old order. A worker drops requests that it has seen, and answers the others. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_ADOPT_REPEAT_H
#define FRMPS_SERVER_ADOPT_REPEAT_H

#include <stdint.h>

struct worker;

/** Sends the request as worker->next_request. */
typedef void repeat_fn(struct worker *worker, void *context);

struct repetition {
	struct worker *worker;
	uint64_t id;
	repeat_fn *send;
	void *context;
};

/* All zero at first. */
struct repetitions {
	struct repetition *at;
	uint32_t count, room;
};

/** @id: the old number */
void repeat_later(
	struct repetitions *list, struct worker *worker, uint64_t id, repeat_fn *send, void *context);

/** Sends all of them, and empties the list. */
void repeat_now(struct repetitions *list);

#endif
