// A client that speaks the protocol by hand. Every function fails the test where its comment names
// no result.

#ifndef FRMPS_TESTS_SYSTEM_RAW_H
#define FRMPS_TESTS_SYSTEM_RAW_H

#include <stdint.h>

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "shm/region.h"
#include "tests/lib/service.h"

struct raw_session {
	int socket;
	int doorbell;
	int client_fd, server_fd;
	struct shm_view view;
	uint64_t window_base, device_bytes, host_bytes;
	uint64_t id;	/* of the latest request */
	uint64_t value; /* the first one of the latest answer, 0: it had none */
};

/** Connects and says nothing. Return: the socket */
int raw_connect(const struct service *service);
/** Waits a minute at most for a packet. Return: as packet_receive() */
int raw_receive(int socket, struct packet *packet);
/** Waits for the other side to hang up, whatever it sends before, and closes. */
void raw_wait_hangup(int socket);

/** As far as a mapped session. */
void raw_open(const struct service *service, struct raw_session *ret_session);
void raw_close(struct raw_session *session);
/** Sends a request and waits for its answer. @ret_fd: a descriptor that came with it, the caller's;
 * may be NULL
 * Return: the answer's code; -1 if the other side hung up */
int raw_ask(struct raw_session *session, struct wire_message *request, int *ret_fd);

#endif
