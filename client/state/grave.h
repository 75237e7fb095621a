// What is given back when the work that may use it is over: lists of it, each with its own idea of
// "over". Any thread.

#ifndef FRMPS_CLIENT_STATE_GRAVE_H
#define FRMPS_CLIENT_STATE_GRAVE_H

#include <pthread.h>
#include <stdbool.h>

/* First member of what is buried. */
struct grave {
	struct grave *next;
};

struct graveyard {
	pthread_mutex_t lock;
	struct grave *first;			    /* guarded by lock */
	bool (*is_over)(const struct grave *grave); /* under the lock: reads memory only */
};

#define GRAVEYARD_INIT(over)                                                                                 \
	{                                                                                                    \
		.lock = PTHREAD_MUTEX_INITIALIZER, .is_over = (over)                                         \
	}

void graveyard_add(struct graveyard *yard, struct grave *grave);
/** Takes one out that is over: it is the caller's. NULL if none is. */
struct grave *graveyard_take(struct graveyard *yard);

#endif
