// See outbox.h.

#include "server/executor/outbox.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/executor.h"
#include "server/log.h"

#define RETRY_NS (10 * CLOCK_MS)

struct unsent {
	TAILQ_ENTRY(unsent) link;
	size_t length;
	uint8_t bytes[];
};

static struct unsent *unsent_new(const uint8_t *bytes, size_t length)
{
	struct unsent *packet = malloc(sizeof(*packet) + length);

	if (!packet)
		return NULL;
	packet->length = length;
	memcpy(packet->bytes, bytes, length);
	return packet;
}

/* All other errors are temporary, or of the machine: the packet is well formed. */
static bool is_over(int error)
{
	return error == 0 || error == PACKET_E_CLOSED;
}

static void keep(struct outbox *outbox, struct unsent *packet, int error)
{
	if (!packet) {
		log_error("a message to the daemon cannot be sent (error %d) nor kept: the executor ends",
			error);
		_exit(EXIT_FAILURE);
	}
	if (TAILQ_EMPTY(&outbox->packets))
		log_warning("a message to the daemon cannot be sent now (error %d), and is kept", error);
	TAILQ_INSERT_TAIL(&outbox->packets, packet, link);
}

int outbox_send(struct executor *executor, const uint8_t *bytes, size_t length)
{
	struct outbox *outbox = &executor->outbox;
	int error = PACKET_E_AGAIN;

	/* The order of messages is the order of events. */
	if (TAILQ_EMPTY(&outbox->packets))
		error = packet_send(executor->control_fd, bytes, length, NULL, 0);
	if (is_over(error))
		return error;
	keep(outbox, unsent_new(bytes, length), error);
	return OUTBOX_E_KEPT;
}

uint64_t outbox_step(struct executor *executor, uint64_t now)
{
	struct outbox *outbox = &executor->outbox;
	struct unsent *packet;

	pthread_mutex_lock(&executor->control_lock);
	while ((packet = TAILQ_FIRST(&outbox->packets)) &&
		is_over(packet_send(executor->control_fd, packet->bytes, packet->length, NULL, 0))) {
		TAILQ_REMOVE(&outbox->packets, packet, link);
		free(packet);
	}
	pthread_mutex_unlock(&executor->control_lock);
	return packet ? now + RETRY_NS : UINT64_MAX;
}

void outbox_init(struct outbox *outbox)
{
	TAILQ_INIT(&outbox->packets);
}

void outbox_deinit(struct outbox *outbox)
{
	struct unsent *packet;

	while ((packet = TAILQ_FIRST(&outbox->packets))) {
		TAILQ_REMOVE(&outbox->packets, packet, link);
		free(packet);
	}
}
