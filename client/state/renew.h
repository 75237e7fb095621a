// What a library is loaded from again: in the driver a library is loaded into each context anew,
// with its variables as in the image. The image is kept as a view of the very file that the service
// holds as well, so it takes addresses and no memory, and no descriptor. One owner; no lock.

#ifndef FRMPS_CLIENT_STATE_RENEW_H
#define FRMPS_CLIENT_STATE_RENEW_H

#include "client/state/image.h"
#include "client/state/jit.h"

struct renewal;

/** NULL if there is no memory or no address for it. */
struct renewal *renewal_new(const struct image *image, const struct jit *jit);
/** Return: NULL, always. */
struct renewal *renewal_free(struct renewal *renewal);

/**
 * The image and its options once more; image_close() the image.
 * @renewal: may be NULL, and then there is no memory. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult renewal_open(const struct renewal *renewal, struct image *ret_image, struct jit *ret_jit);

#endif
