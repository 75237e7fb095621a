// Variables of stock MPS in a program's environment, as far as the service supports these.
// Variables only tighten: a program never gets more than the service grants. Before the session, in
// the thread that starts the library.

#ifndef FRMPS_CLIENT_LINK_MPS_H
#define FRMPS_CLIENT_LINK_MPS_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/* A device of the service, as limits name it. */
struct mps_device {
	unsigned number;
	const uint8_t *uuid; /* 16 bytes; NULL: not known yet */
};

/**
 * Reads the program's limit of memory on a device: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, a list of
 * DEVICE=BYTES with K, M or G. DEVICE is the device's number in the service, or the beginning of
 * its UUID. The last entry for the device holds; others are ignored.
 * @ret_bytes: 0: the variable is not set, or names other devices
 * @ret_needs_uuid: the list has UUIDs, and the device's is not known
 * Return: CUDA_ERROR_INVALID_VALUE for an invalid text, which is logged: without the limit the
 * program could take other programs' memory
 */
CUresult mps_memory_limit(const struct mps_device *device, uint64_t *ret_bytes, bool *ret_needs_uuid);

/** As mps_memory_limit(), for a text. */
CUresult mps_parse_limit(
	const char *text, const struct mps_device *device, uint64_t *ret_bytes, bool *ret_needs_uuid);

/**
 * Reads the program's limit of multiprocessors, percent of the device's:
 * CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, a number from 1 to 100. Fractions of a percent are dropped.
 * @ret_percent: 0: the variable is not set
 * Return: CUDA_ERROR_INVALID_VALUE for an invalid text, which is logged
 */
CUresult mps_sm_percent(uint32_t *ret_percent);

/**
 * Reads the program's priority: CUDA_MPS_CLIENT_PRIORITY, 0 or 1.
 * @ret_priority: 1: behind other programs of its user
 * Return: CUDA_ERROR_INVALID_VALUE for an invalid text, which is logged
 */
CUresult mps_priority(uint32_t *ret_priority);

/**
 * The name of the program's SM partition: CUDA_MPS_SM_PARTITION. Return: empty if the variable is
 * not set
 */
const char *mps_sm_partition(void);

/** Logs the variables of stock MPS that are set and have no effect. */
void mps_report_unsupported(void);

#endif
