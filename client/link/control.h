// Requests to the service over the control socket of the calling thread's session: everything that
// is slow or has descriptors, which only answers have. Any thread of the program; a single request
// is in flight at a time (requests are rare). A caller may hold locks that come before `control`
// (shm/locks.def).

#ifndef FRMPS_CLIENT_LINK_CONTROL_H
#define FRMPS_CLIENT_LINK_CONTROL_H

#include <pthread.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/socket.h"
#include "protocol/wire.h"

struct backing;

/* A decoded answer and its packet, into which it points. About 80 KB: allocate with
 * control_answer_new(). */
struct control_answer {
	struct packet packet;
	struct wire_message message; /* type WIRE_REPLY when the call succeeded */
};

/* Of a session: the turn of its threads. */
struct control {
	pthread_mutex_t lock;
	uint64_t latest_id; /* guarded by lock */
};

/** Called by session start. */
void control_start(void);

struct control_answer *control_answer_new(void);
struct control_answer *control_answer_free(struct control_answer *answer);

/**
 * Sends a request and waits for its Reply.
 * @request: type and body; the call fills in id and session
 * @ret_answer: the Reply and its descriptors (take these with packet_take_fd(); _free closes the
 * rest)
 * Return: the Reply's own code, else the sticky error of a lost service.
 */
CUresult control_call(struct wire_message *request, struct control_answer *ret_answer);

/**
 * Asks for a file for the bytes of a later request.
 * @ret_fd: an empty memfd, close-on-exec, which the caller closes; @ret_file: its number for
 * requests
 * Return: CUDA_ERROR_OUT_OF_MEMORY, or the sticky error of a lost service
 */
CUresult control_make_file(int *ret_fd, uint64_t *ret_file);

/**
 * Gives the service a file of the program's own, for a MapHost.
 * @ret_file: its number for the request
 * Return: CUDA_ERROR_NOT_SUPPORTED: not a file in memory that can be written,
 * CUDA_ERROR_ILLEGAL_STATE: try once more, CUDA_ERROR_OUT_OF_MEMORY, or the sticky error of a lost
 * service
 */
CUresult control_take_file(const struct backing *file, uint64_t *ret_file);

#endif
