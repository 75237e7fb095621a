// Messages to the daemon that the kernel would not take at the moment, for lack of memory for
// example: they wait here, in their order, and the main thread sends them again. Whoever asked
// something waits for the answer for ever, so none is dropped: where there is no memory to keep one
// either, the process ends, and another executor answers.

#ifndef FRMPS_SERVER_EXECUTOR_OUTBOX_H
#define FRMPS_SERVER_EXECUTOR_OUTBOX_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct executor;
struct unsent;

struct outbox {
	TAILQ_HEAD(, unsent) packets;
};

void outbox_init(struct outbox *outbox);
void outbox_deinit(struct outbox *outbox);

/** Sends a packet, or keeps it. Under control_lock; any thread.
 * Return: 0, OUTBOX_E_KEPT: the main thread is to be kicked, or PACKET_E_CLOSED */
#define OUTBOX_E_KEPT 100
int outbox_send(struct executor *executor, const uint8_t *bytes, size_t length);

/** Sends what is kept. Main thread. Return: when it wants to go on, ns; UINT64_MAX: nothing is
 * left */
uint64_t outbox_step(struct executor *executor, uint64_t now);

#endif
