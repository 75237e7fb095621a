// The program's view of the devices: the snapshot of the handshake, filtered by
// CUDA_VISIBLE_DEVICES. cuInit writes the snapshot once; it is read-only afterwards, so every
// question is answered without a lock and without the service. Only the number of multiprocessors
// can change: the service writes the granted number where the program can read it.
//
// A session has a single device: the device of the executor that serves it. That device is ordinal
// 0 or hidden.

#ifndef FRMPS_CLIENT_STATE_DEVICE_H
#define FRMPS_CLIENT_STATE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

#define DEVICE_ATTRIBUTES_MAX 256u
#define DEVICE_LIMITS_MAX     32u
#define DEVICE_NAME_MAX	      256u

struct client_device {
	char name[DEVICE_NAME_MAX];
	uint8_t uuid[16];
	uint32_t attribute_count;
	int32_t attributes[DEVICE_ATTRIBUTES_MAX];
	uint64_t total_bytes;
	int32_t priority_least, priority_greatest;
	uint32_t limit_count;
	uint64_t limits[DEVICE_LIMITS_MAX];
};

/** Devices that the program may see; 0 before cuInit. */
int device_count(void);

/** The device of an ordinal, NULL for an invalid ordinal. Valid for the life of the process. */
const struct client_device *device_get(int ordinal);

/**
 * The identity of a device: exactly the values that the device queries return.
 * Return: false for an invalid ordinal; outputs are then untouched.
 */
bool device_identity(
	int ordinal, uint8_t ret_uuid[16], int32_t *ret_domain, int32_t *ret_bus, int32_t *ret_device);

/**
 * Number of the device's multiprocessors that the service currently grants to the program's
 * kernels; 0: all. Not in a forked child, which does not have the service's words.
 */
uint32_t device_sms(void);

/**
 * Value of a device attribute; of multiprocessors only the granted number. CUDA_ERROR_INVALID_VALUE
 * for attributes that the device does not know.
 */
CUresult device_attribute(const struct client_device *device, int attribute, int *ret_value);

/**
 * Checks a place of memory: the program's device, or its processors.
 * Return: CUDA_ERROR_INVALID_DEVICE for another device, CUDA_ERROR_INVALID_VALUE for no such place
 */
CUresult device_check_location(const CUmemLocation *location);

/** True if CUDA_VISIBLE_DEVICES hides every device. */
bool device_all_hidden(const char *visible);

/**
 * True if the first entry, which determines the kind of the others, names a part of a GPU: a MIG
 * device. No service has a MIG device.
 */
bool device_is_mig(const char *visible);

/**
 * The place of a device in a CUDA_VISIBLE_DEVICES list: the ordinal in the program, -1 for a hidden
 * device, DEVICE_TWICE if the list names the device twice, with which the driver does not start.
 * The list ends at the first invalid entry, and all entries are of the kind of the first: numbers
 * or UUIDs.
 * @visible: NULL means all
 * @index: the device's number, of @count; @uuids: their UUIDs
 */
#define DEVICE_TWICE -2
int device_ordinal(const char *visible, int index, int count, const uint8_t (*uuids)[16]);

/**
 * Takes the snapshot. Called once, by process start, before any other thread can ask.
 * Return: CUDA_ERROR_NO_DEVICE if none is visible, CUDA_ERROR_INVALID_DEVICE for a device named
 * twice.
 */
CUresult device_snapshot(const struct wire_welcome *welcome, const char *visible);

#endif
