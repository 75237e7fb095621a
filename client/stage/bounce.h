// Asynchronous copies between the device and registered memory that the device does not reach. The
// data goes through pinned memory, and a host function in the stream does the processor's half. So
// source and destination are accessed in stream order, as with the driver. Any thread.

#ifndef FRMPS_CLIENT_STAGE_BOUNCE_H
#define FRMPS_CLIENT_STAGE_BOUNCE_H

#include <stdbool.h>

#include "client/stage/box.h"
#include "protocol/cuda_abi.h"

struct client_stream;

/** The device's half of such a copy: submits a copy between pinned and device memory. */
typedef CUresult bounce_copy(const struct box *box, struct client_stream *stream, bool to_device);

/**
 * Copies in stream order. CUDA_ERROR_OUT_OF_MEMORY: no pinned memory is left, and the caller may
 * copy in another way. @to_device: the source is registered memory; else the destination is
 */
CUresult bounce(const struct box *box, struct client_stream *stream, bool to_device, bounce_copy *copy);

/** Frees the memory of finished copies. Entry points that synchronise call this. */
void bounce_settle(void);

#endif
