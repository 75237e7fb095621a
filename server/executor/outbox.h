// Messages to the daemon that the kernel would not take at the moment, for lack of memory for
// example: messages wait here, in order, and the main thread sends each again. A caller waits for
// an answer for ever, so no message is dropped: without memory to queue a message the process ends,
// and another executor answers.

#ifndef FRMPS_SERVER_EXECUTOR_OUTBOX_H
#define FRMPS_SERVER_EXECUTOR_OUTBOX_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct executor;

struct outbox {
	TAILQ_HEAD(, unsent) packets;
};

void outbox_init(struct outbox *outbox);
void outbox_deinit(struct outbox *outbox);

/** Sends a packet, or queues it. Under control_lock; any thread.
 * Return: 0, OUTBOX_E_KEPT: kick the main thread, or PACKET_E_CLOSED */
#define OUTBOX_E_KEPT 100
int outbox_send(struct executor *executor, const uint8_t *bytes, size_t length);

/** Sends queued packets. Main thread. Return: when to call again, ns; UINT64_MAX: the queue is
 * empty */
uint64_t outbox_step(struct executor *executor, uint64_t now);

#endif
