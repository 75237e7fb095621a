// What a dead daemon had asked of workers and got no answer to: it is asked again with the numbers
// of then, in their order. A worker drops those that it has seen, and answers them. Daemon, loop
// thread only.

#ifndef FRMPS_SERVER_ADOPT_REPEAT_H
#define FRMPS_SERVER_ADOPT_REPEAT_H

#include <stddef.h>
#include <stdint.h>

struct record;
struct worker;

/** Sends it, as worker->next_request. */
typedef void repeat_fn(struct worker *worker, void *context, const struct record *record);

struct repetition {
	struct worker *worker;
	uint64_t id;
	repeat_fn *send;
	void *context;
	const struct record *record;
};

/* All zero at first. */
struct repetitions {
	struct repetition *at;
	size_t count, room;
};

/** @id: the number of then; @record: of what is sent, if it has one of its own */
void repeat_later(struct repetitions *list, struct worker *worker, uint64_t id, repeat_fn *send,
	void *context, const struct record *record);

/** Sends them all, and empties the list. */
void repeat_now(struct repetitions *list);

#endif
