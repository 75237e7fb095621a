// Asynchronous copies between the device and memory that the program registered but that the device
// does not reach: through pinned memory, and the processor's half is a host function in the stream.
// So source and destination are read and written when it is their turn, as with the driver. Any
// thread.

#ifndef FRMPS_CLIENT_STAGE_BOUNCE_H
#define FRMPS_CLIENT_STAGE_BOUNCE_H

#include <stdbool.h>

#include "client/stage/box.h"
#include "protocol/cuda_abi.h"

struct client_stream;

/** The device's half of such a copy: gives a copy between pinned and device memory to the
 * stream. */
typedef CUresult bounce_copy(const struct box *box, struct client_stream *stream, bool to_device);

/** Copies in stream order. CUDA_ERROR_OUT_OF_MEMORY: there is no room for it, and the copy may be
 * made in another way. @to_device: the source is registered memory; else the destination is */
CUresult bounce(const struct box *box, struct client_stream *stream, bool to_device, bounce_copy *copy);

/** Gives back what copies that are done have used. Called where the program synchronises. */
void bounce_settle(void);

#endif
