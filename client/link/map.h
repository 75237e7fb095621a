// Pinned memory, the service's or a file of the program's own, at addresses in the host part of the
// session's window; the device uses the same addresses. Callers manage the addresses. Any thread.

#ifndef FRMPS_CLIENT_LINK_MAP_H
#define FRMPS_CLIENT_LINK_MAP_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct backing;
struct wire_message;

/**
 * Backs addresses with pinned, zeroed memory for the program: a forked child shares the memory.
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult map_host(uint64_t address, uint64_t bytes);

/**
 * Backs addresses with the memory in the answer to a request, for this library: a forked child does
 * not have the memory. Return: also the service's errors.
 */
CUresult map_host_own(struct wire_message *request, uint64_t address, uint64_t bytes);

/**
 * Backs addresses with pages of a file in memory, in this process and on the device, as they are.
 * @file: has these pages
 * Return: CUDA_ERROR_NOT_SUPPORTED: the service cannot pin that file. CUDA_ERROR_OUT_OF_MEMORY, or
 * the sticky error of a lost service
 */
CUresult map_host_file(uint64_t address, uint64_t bytes, const struct backing *file);

/**
 * Returns the memory to the service; the addresses stay reserved. CUDA_ERROR_OUT_OF_MEMORY: nothing
 * has changed.
 */
CUresult map_host_end(uint64_t address, uint64_t bytes);

#endif
