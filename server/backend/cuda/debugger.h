// The debugger object of this process's context, and the kernel-mode driver's operations on that
// object: report that a kernel has faulted, stop the context, access its memory, let the context go
// on. The driver makes the object with the context, because exceptions are to be handled as for a
// debugger (worker/exceptions.c).

#ifndef FRMPS_SERVER_BACKEND_CUDA_DEBUGGER_H
#define FRMPS_SERVER_BACKEND_CUDA_DEBUGGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/backend/cuda/control.h"

/* The error state of a multiprocessor: NV83DE_SM_ERROR_STATE_REGISTERS. */
struct debugger_state {
	uint32_t global_error, warp_error, warp_pc, global_mask, warp_mask, pad;
	uint64_t address, pc;
	uint32_t cluster_error, cluster_mask;
};

/** An ioctl() of this process that has succeeded. Any thread. */
void debugger_note(int fd, unsigned long request, const void *argument);
/** Nothing was noted. @execute: makes controls. For tests, and before a context is made. */
void debugger_reset(control_execute_fn *execute);

/** The save area (warps.h) of the context, mapped for the processor. NULL: none is known. */
void *debugger_area(void);

/**
 * A descriptor that becomes readable when a kernel has faulted, and that poll() resets.
 * Return: the descriptor, for as long as the process lives or until debugger_no_event(); or -errno
 */
int debugger_event(void);
/** Nobody waits for the event after all. */
void debugger_no_event(int event);

/* The thread that handles exceptions. Return: true if the kernel-mode driver reports success. */
bool debugger_stop(void);
bool debugger_resume(void);
/** @first, count: multiprocessors; at most DEBUGGER_STATES_MAX */
#define DEBUGGER_STATES_MAX 100u
bool debugger_read_states(uint32_t first, uint32_t count, struct debugger_state *ret_states);
bool debugger_clear_state(uint32_t sm);
/** Of all multiprocessors. @count: how many there are */
bool debugger_clear_states(uint32_t count);
/** @address: virtual, on the device, in memory that the driver has made for itself (code,
 * descriptors of grids) */
bool debugger_read(uint64_t address, void *ret_bytes, uint32_t count);
bool debugger_write(uint64_t address, const void *bytes, uint32_t count);
/**
 * Shows the pieces of such memory that are small enough to be code of the driver, successively,
 * until @look accepts a piece. While nobody makes or frees memory.
 * @look: gets the piece's address and bytes, and returns true to accept
 * Return: true if a piece was accepted
 */
typedef bool debugger_look_fn(void *context, uint64_t address, const uint8_t *bytes, uint64_t count);
bool debugger_search(debugger_look_fn *look, void *context);
/** True if the range is such memory. Any thread. */
bool debugger_has(uint64_t address, uint64_t count);

#endif
