// NVML as a witness: the driver's management library tells of each critical Xid of a device, but
// not whose it was. So what it says is a sign at most, like a line of the kernel log without a
// process, which comes earlier where it can be read; a fault of the device itself needs no process.
// A service that has no such library, or may not use it, does without. Daemon, loop thread.

#ifndef FRMPS_SERVER_FAULT_NVML_H
#define FRMPS_SERVER_FAULT_NVML_H

#include <stdint.h>

struct nvml;
struct uv_loop_s;
struct xid;

/** Called for each such event: xid->pid is 0. */
typedef void nvml_fn(void *context, const struct xid *xid);

/**
 * Listens to a device. What comes of it is said once, later: opening the library takes its time,
 * and is not waited for.
 * @uuid: 16 bytes of the device
 * Return: NULL where no library is to be used, or without memory
 */
struct nvml *nvml_new(
	struct uv_loop_s *loop, const char *backend, const uint8_t *uuid, nvml_fn *found, void *context);
/** NULL is fine. Return: NULL. */
struct nvml *nvml_free(struct nvml *nvml);

#endif
