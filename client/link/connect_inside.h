// What connect.c and inquiry.c share: the Hello and its answer. For these two alone.

#ifndef FRMPS_CLIENT_LINK_CONNECT_INSIDE_H
#define FRMPS_CLIENT_LINK_CONNECT_INSIDE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/link/connect.h"

/* Daemons that may die during a single start of a program. */
#define CONNECT_DEATHS 8

/* Wishes in the program's environment, and the library's own. */
struct connect_wish {
	unsigned number; /* of the device */
	enum connect_want want;
	uint32_t recovery, sm_percent, priority;
	uint64_t memory_limit;
	const char *sm_partition;
};

/* Around the opening or closing of recorded descriptors: no fork in between, see connect.c. */
struct connect_change {
	sigset_t mask; /* of the thread, before */
	bool locked;
};

void connect_begin_change(struct connect_change *change);
void connect_end_change(const struct connect_change *change);

/** Monotonic. */
int64_t connect_now_ms(void);
/** FRMPS_CONNECT_TIMEOUT. */
int64_t connect_timeout_ms(void);

/** Sends Hello. @refused: windows that are not offered, as bits */
CUresult connect_greet(int fd, const struct connect_wish *wish, const uint64_t refused[WINDOW_WORDS]);

/**
 * Takes the answer to Hello, which is there: this does not wait.
 * @ret_hung_up: set if the daemon has closed the connection; else unchanged
 * Return: CUDA_SUCCESS with a Welcome or, if it was wanted, a Description; else the reason was
 * logged, but for a daemon that hung up
 */
CUresult connect_take(
	int fd, const struct connect_wish *wish, struct control_answer *answer, bool *ret_hung_up);

/** Checks a Description. */
CUresult connect_judge_description(const struct wire_description *description);

#endif
