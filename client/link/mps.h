// What a program's environment says to stock MPS, as far as it means something here. Variables only
// tighten: what the service grants is never more than it says itself. Before the session, in the
// thread that starts the library.

#ifndef FRMPS_CLIENT_LINK_MPS_H
#define FRMPS_CLIENT_LINK_MPS_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

/**
 * Reads how much device memory the program wants to have at most: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT,
 * a list of NUMBER=BYTES with K, M or G. Number 0 is the one device that a program sees; the others
 * are nobody's.
 * @ret_bytes: 0: the variable is not set, or names no device 0
 * Return: CUDA_ERROR_INVALID_VALUE if it cannot be understood, which is logged: without the limit
 * somebody would have too much
 */
CUresult mps_memory_limit(uint64_t *ret_bytes);

/** The same of a text. */
CUresult mps_parse_limit(const char *text, uint64_t *ret_bytes);

/**
 * Reads how many multiprocessors the program wants to use at most, percent of the device's:
 * CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, a number from 1 to 100. Parts of a percent are let go.
 * @ret_percent: 0: the variable is not set
 * Return: CUDA_ERROR_INVALID_VALUE if it cannot be understood, which is logged
 */
CUresult mps_sm_percent(uint32_t *ret_percent);

/**
 * Reads whether the program wants to come behind others of its user: CUDA_MPS_CLIENT_PRIORITY, 0 or
 * 1.
 * @ret_priority: 1: it does
 * Return: CUDA_ERROR_INVALID_VALUE if it cannot be understood, which is logged
 */
CUresult mps_priority(uint32_t *ret_priority);

/** The name of the SM partition that the program belongs to: CUDA_MPS_SM_PARTITION. Return: empty
 * if it is not set */
const char *mps_sm_partition(void);

/** Logs which variables of stock MPS are set and have no effect. */
void mps_tell_unsupported(void);

#endif
