// Reclaim lists: objects that are freed once the work that may use them is done. Each list has its
// own test for that. Any thread.

#ifndef FRMPS_CLIENT_STATE_RECLAIM_H
#define FRMPS_CLIENT_STATE_RECLAIM_H

#include <pthread.h>
#include <stdbool.h>

/* First member of an object on a reclaim list. */
struct reclaim {
	struct reclaim *next;
};

struct reclaim_list {
	pthread_mutex_t lock;
	struct reclaim *first;				/* guarded by lock */
	bool (*is_over)(const struct reclaim *reclaim); /* under the lock: reads memory only */
};

#define RECLAIM_LIST_INIT(over)                                                                              \
	{                                                                                                    \
		.lock = PTHREAD_MUTEX_INITIALIZER, .is_over = (over)                                         \
	}

void reclaim_add(struct reclaim_list *list, struct reclaim *reclaim);
/** Removes an object whose work is done; the caller owns it. NULL if there is none. */
struct reclaim *reclaim_take(struct reclaim_list *list);

#endif
