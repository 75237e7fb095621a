// Ids that the client chooses for the service's objects: 1 … bound - 1, the lowest free id first.
// Any thread.

#ifndef FRMPS_CLIENT_STATE_IDS_H
#define FRMPS_CLIENT_STATE_IDS_H

#include <pthread.h>
#include <stdint.h>

struct ids {
	pthread_mutex_t lock;
	uint64_t *words; /* bound / 64 words */
	uint32_t bound;
};

/* Words in static memory; id 0 is none. */
#define IDS_INIT(storage)                                                                                    \
	{                                                                                                    \
		.lock = PTHREAD_MUTEX_INITIALIZER, .words = (storage),                                       \
		.bound = (uint32_t)(sizeof(storage) * 8)                                                     \
	}

/** Return: the id, 0 when all are in use. */
uint32_t ids_take(struct ids *ids);
void ids_give(struct ids *ids, uint32_t id);

#endif
