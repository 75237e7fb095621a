// Copies with an end that the device of the stream does not reach: from device to device, or
// between another device and pinned or registered memory. The data goes in pieces through pinned
// memory of both devices:
//
//   stream         point ───────────────────────────────────────── gate ► later commands
//                    └► source's device: copy out ┐                  ▲
//                                  the relay: copies from one pinned piece to the other
//                                               └► destination's device: copy in ┘
//
// So the copy comes behind all earlier work of the stream and before all later work, and holds no
// other stream. A copy takes a stream and some MiB of pinned memory in each device's session; later
// copies use both again. If a session ends, the copy ends: the next wait for each of the other
// sessions returns the error once (wait_late_error()). Any thread.

#ifndef FRMPS_CLIENT_STAGE_FERRY_H
#define FRMPS_CLIENT_STAGE_FERRY_H

#include <stdbool.h>
#include <stdint.h>

#include "client/stage/box.h"
#include "protocol/cuda_abi.h"

struct client_stream;
struct session;

/** Called by session start. @make_stream: makes a stream for the library's own use in the calling
 * thread's session; NULL: there is none */
void ferry_start(struct client_stream *(*make_stream)(void));

/** A device's part of such a copy: submits a copy between its memory and pinned memory.
 * @ret_seq: of the command, which carries a mark */
typedef CUresult ferry_send(
	const struct box *box, struct client_stream *stream, bool to_device, uint64_t *ret_seq);

/**
 * Copies a box that is not empty in stream order.
 * @to, @from: the sessions of the sides; NULL: host memory, which the processor reads or writes
 * @ret_seq: the command of the stream that is done when the copy is
 * Return: CUDA_ERROR_OUT_OF_MEMORY: no pinned memory, no stream, or no thread; the sticky error
 */
CUresult ferry(const struct box *box, struct session *to, struct session *from, struct client_stream *stream,
	ferry_send *send, uint64_t *ret_seq);

#endif
