// Asks, in a separate process, if this machine can run a backend: the daemon itself never loads the
// driver, and the question needs the children's environment anyway.

#ifndef FRMPS_SERVER_PROBE_H
#define FRMPS_SERVER_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/place.h"

struct backend_ops;

/* The answer, as sent through a pipe. */
struct probe_answer {
	int32_t device_count;	      /* 0: the backend does not work */
	uint64_t exclusive;	      /* bit i: device i allows a context to one process alone */
	uint8_t unfit[PLACE_DEVICES]; /* enum unfit: why device i cannot be served */
	uint8_t uuids[PLACE_DEVICES][16];
	uint8_t peers[PLACE_DEVICES][PLACE_DEVICES]; /* as of the backend */
	char text[256];				     /* the reason of a failure */
};

/* A driver that nobody uses starts for seconds, on a machine with many devices. */
#define PROBE_PATIENCE_MS 60000u

/**
 * Spawns the process and waits for its answer.
 * @program: path of frmps-server
 * @backend: cuda or host
 * @environment: of the child
 * @patience_ms: for the answer
 * Return: 0 or -errno; @ret_answer->device_count is 0 if the backend does not work
 */
int probe_ask(const char *program, const char *backend, char *const *environment, unsigned patience_ms,
	struct probe_answer *ret_answer);

/** The child: answers on the descriptor. Return: exit code. */
int probe_main(const struct backend_ops *ops, int answer_fd);

#endif
