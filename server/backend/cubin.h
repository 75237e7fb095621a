// Machine code in compilers' format: which state can its kernels leave behind? See cubin.c.

#ifndef FRMPS_SERVER_BACKEND_CUBIN_H
#define FRMPS_SERVER_BACKEND_CUBIN_H

#include <stddef.h>
#include <stdint.h>

#include "server/backend/statics.h"

/**
 * Adds the state that a cubin's kernels can leave behind. Any bytes; parts that are not understood
 * become `more`. Cubins of which only one will be loaded are added successively. Any thread.
 */
void cubin_add_statics(struct statics *statics, const uint8_t *image, size_t bytes);

#endif
