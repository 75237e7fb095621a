// What the daemon records of a child (adopt/store.h): written by worker_keep(), read by adopt/adopt.c. Descriptors are named
// by their keys, domains by their numbers, 0 is none.

#ifndef FRMPS_SERVER_WORKER_RECORD_H
#define FRMPS_SERVER_WORKER_RECORD_H

#include <stdbool.h>
#include <stdint.h>

/* RECORD_WORKER, key: number; followed by the numbers of immovable sessions. */
struct kept_worker {
	uint32_t domain; /* 0: the keeper */
	uint32_t state, generation, keeper_number;
	int32_t pid, lost_code;
	bool was_ready, was_warm, lost, contains, told;
	bool in_step;			  /* a standby of which no answer is awaited */
	uint32_t control, process, words; /* descriptors */
	uint32_t immovable_count;
	uint32_t settled;
	uint64_t started_us;
	char lost_text[256];
};

#endif
