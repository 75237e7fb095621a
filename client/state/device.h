// The program's view of the service's devices, filtered by CUDA_VISIBLE_DEVICES. cuInit lists them
// once, so every question is answered without a lock and without the service. Only the number of
// multiprocessors can change: the service writes the granted number where the program can read it.
//
// A process has a session on each device that it works on: with one device in the service from
// cuInit on, else from the first call that needs one on the device (start.h).

#ifndef FRMPS_CLIENT_STATE_DEVICE_H
#define FRMPS_CLIENT_STATE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/place.h"
#include "protocol/wire.h"

#define DEVICE_ATTRIBUTES_MAX 256u
#define DEVICE_LIMITS_MAX     32u
#define DEVICE_NAME_MAX	      256u

struct client_device {
	unsigned number; /* its place in the service */
	char name[DEVICE_NAME_MAX];
	uint8_t uuid[16];
	uint32_t attribute_count;
	int32_t attributes[DEVICE_ATTRIBUTES_MAX];
	uint64_t total_bytes;
	int32_t priority_least, priority_greatest;
	uint32_t limit_count;
	uint64_t limits[DEVICE_LIMITS_MAX];
	uint8_t peers[PLACE_DEVICES];  /* by number in the service: WIRE_PEER_*, 0: none */
	uint32_t sm_granule, sm_units; /* part.h */
};

/** Devices that the program may see; 0 before cuInit. */
int device_count(void);

/** The device of an ordinal, NULL for an invalid ordinal. Valid for the life of the process. */
const struct client_device *device_get(int ordinal);

/** The ordinal of a device of the service; -1: the program does not see it. */
int device_of_number(unsigned number);

/** The ordinal of the device of the calling thread's session. */
int device_own(void);

/** Return: CUDA_ERROR_INVALID_DEVICE for an invalid ordinal */
CUresult device_check(int ordinal);

/**
 * The identity of a device: exactly the values that the device queries return.
 * Return: false for an invalid ordinal; outputs are then untouched.
 */
bool device_identity(
	int ordinal, uint8_t ret_uuid[16], int32_t *ret_domain, int32_t *ret_bus, int32_t *ret_device);

/**
 * Number of multiprocessors that the service currently grants to the program's kernels on the
 * device of the calling thread's session; 0: all. Not in a forked child, which does not have the
 * service's words.
 */
uint32_t device_sms(void);

/**
 * Value of a device attribute; of multiprocessors only the granted number. CUDA_ERROR_INVALID_VALUE
 * for attributes that the device does not know.
 */
CUresult device_attribute(const struct client_device *device, int attribute, int *ret_value);

/** The nearest priority of streams that the thread's device has. */
int32_t device_clamp_priority(int32_t priority);

/** Whether the machine has a NUMA node; without NUMA it has node 0. */
bool device_is_node(int id);

/**
 * Checks a place of memory: a device of the program, or its processors.
 * Return: as device_check(), CUDA_ERROR_INVALID_VALUE for no such place
 */
CUresult device_check_location(const CUmemLocation *location);

/** True if CUDA_VISIBLE_DEVICES hides every device. */
bool device_all_hidden(const char *list);

/**
 * True if the first entry, which determines the kind of the others, names a part of a GPU: a MIG
 * device. No service has a MIG device.
 */
bool device_is_mig(const char *list);

/**
 * The place of a device in a CUDA_VISIBLE_DEVICES list: the ordinal in the program, -1 for a hidden
 * device, DEVICE_TWICE if the list names the device twice, with which the driver does not start.
 * The list ends at the first invalid entry, and all entries are of the kind of the first: numbers
 * or UUIDs.
 * @list: NULL means all
 * @index: the device's number, below `most`; @uuids: of all devices
 */
#define DEVICE_TWICE -2
int device_ordinal(const char *list, int index, int most, const uint8_t (*uuids)[16]);

/** The number that a CUDA_VISIBLE_DEVICES list names first, below PLACE_DEVICES; 0 as well for a
 * list of another kind, or none. */
unsigned device_named_first(const char *list);

/** False if a CUDA_VISIBLE_DEVICES list hides a device, as far as that can be said without UUIDs.
 * @count: of the service's devices */
bool device_may_be_seen(const char *list, unsigned number, unsigned count);

/*
 * Filled in by process start, before any other thread can ask.
 */

/** Begins a list of devices. */
void device_begin(void);

/** Adds a device. @number: its place in the service, which has `of` devices; @memory_wish: most
 * memory that the program wants there, bytes; 0: no limit */
void device_add(unsigned number, unsigned of, const struct wire_device *from, uint64_t memory_wish);

/** How many devices the service has; 0: none was added. */
unsigned device_listed(void);

/** True if the device was added. */
bool device_is_known(unsigned number);

/**
 * Ends the list. @list: CUDA_VISIBLE_DEVICES; NULL: all
 * Return: CUDA_ERROR_NO_DEVICE if none is visible, CUDA_ERROR_INVALID_DEVICE for a device named
 * twice.
 */
CUresult device_choose(const char *list);

/** The session of a device begins: takes the final description. Once, with the session. */
void device_settle(int ordinal, const struct wire_device *from);

#endif
