// Requests to the service over the control socket: everything slow or with descriptors, which only
// answers have. Any thread of the program; one request is on the wire at a time (requests are
// rare), callers wait in line without holding any other lock of the shim.

#ifndef FRMPS_CLIENT_LINK_CONTROL_H
#define FRMPS_CLIENT_LINK_CONTROL_H

#include "protocol/cuda_abi.h"
#include "protocol/socket.h"
#include "protocol/wire.h"

/* A decoded answer and the packet it points into. About 80 KB: allocate with
 * control_answer_new(). */
struct control_answer {
	struct packet packet;
	struct wire_message message; /* type WIRE_REPLY when the call succeeded */
};

struct control_answer *control_answer_new(void);
struct control_answer *control_answer_free(struct control_answer *answer);

/**
 * Sends a request and waits for its Reply.
 * @request: type and body; id and session are filled in here
 * @ret_answer: the Reply and its descriptors (take them with packet_take_fd(); the rest is closed
 * by _free)
 * Return: the Reply's own code when there was one, else the sticky error of a lost service.
 */
CUresult control_call(struct wire_message *request, struct control_answer *ret_answer);

/**
 * Asks for a file for the bytes of a later request.
 * @ret_fd: an empty memfd, close-on-exec, the caller's; @ret_file: what requests call it
 * Return: CUDA_ERROR_OUT_OF_MEMORY, or the sticky error of a lost service
 */
CUresult control_make_file(int *ret_fd, uint64_t *ret_file);

#endif
