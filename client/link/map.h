// Pinned memory of the service at addresses of the host part of the session's window, which it has
// at the device, too. Who uses which addresses is the caller's business. Any thread.

#ifndef FRMPS_CLIENT_LINK_MAP_H
#define FRMPS_CLIENT_LINK_MAP_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct wire_message;

/** Has addresses backed with pinned memory of zeros, for the program: a forked child shares them.
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult map_host(uint64_t address, uint64_t bytes);

/** Has them backed with the memory that comes with the answer to a request, for this library: a
 * forked child does not have it. Return: also what the service answers. */
CUresult map_host_own(struct wire_message *request, uint64_t address, uint64_t bytes);

/** The addresses are only reserved again, and the service has its memory back.
 * CUDA_ERROR_OUT_OF_MEMORY: all is as before. */
CUresult map_host_end(uint64_t address, uint64_t bytes);

#endif
