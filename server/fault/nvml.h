// NVML as a witness: the driver's management library reports each critical Xid of a device without
// naming a process. So a report is a sign at most, like a line of the kernel log without a process,
// which comes earlier where the log can be read; a fault of the device itself needs no process. A
// service that lacks the library, or may not use it, does without. Daemon, loop thread.

#ifndef FRMPS_SERVER_FAULT_NVML_H
#define FRMPS_SERVER_FAULT_NVML_H

#include <stdbool.h>
#include <stdint.h>

struct nvml;
struct uv_loop_s;
struct xid;

/** Called for each such event: xid->pid is 0. */
typedef void nvml_fn(void *context, const struct xid *xid);

/**
 * Listens to a device. The result is logged once, later: opening the library takes time, and the
 * loop does not wait.
 * @uuid: 16 bytes of the device
 * Return: NULL where no library is to be used, or without memory
 */
struct nvml *nvml_new(
	struct uv_loop_s *loop, const char *backend, const uint8_t *uuid, nvml_fn *found, void *context);
/** Ends the thread, which closes the device. NULL is fine. Return: true if the thread has ended,
 * which it does within a second after the first call */
bool nvml_stop(struct nvml *nvml);
/** NULL is fine. Return: NULL. */
struct nvml *nvml_free(struct nvml *nvml);

#endif
