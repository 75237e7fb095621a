// The source of a library's reload: the driver loads a library into each context anew, with its
// variables as in the image. A view of the very file that the service also holds keeps the image,
// so it uses addresses but no memory, and no descriptor. A single owner; no lock.

#ifndef FRMPS_CLIENT_STATE_RENEW_H
#define FRMPS_CLIENT_STATE_RENEW_H

#include "client/state/image.h"
#include "client/state/jit.h"

struct renewal;

/** NULL without memory or addresses. */
struct renewal *renewal_new(const struct image *image, const struct jit *jit);
/** Return: always NULL. */
struct renewal *renewal_free(struct renewal *renewal);

/**
 * The image and its options again; image_close() the image.
 * @renewal: NULL counts as no memory. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult renewal_open(const struct renewal *renewal, struct image *ret_image, struct jit *ret_jit);

#endif
