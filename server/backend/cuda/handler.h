// The trap handler: the driver's code on the device that every stopped warp runs. The handler
// writes the warp's record (warps.h), waits, and lets the warp go on after its instruction. This
// file changes the handler so that a warp can go on elsewhere, as directed by the record. A single
// thread at a time: the thread that makes the context, then the thread that handles exceptions.

#ifndef FRMPS_SERVER_BACKEND_CUDA_HANDLER_H
#define FRMPS_SERVER_BACKEND_CUDA_HANDLER_H

#include <stdbool.h>

/**
 * Looks for the handler in the memory that the driver has made for itself, checks that its form is
 * known and that its records are those of warps.h, and changes the code. From now on a warp with an
 * address in its record (warps_release()) goes on at that address. To be called before any kernel
 * has run in the context: code in a multiprocessor's cache does not change.
 * @area: the save area's address
 * Return: true if the handler exists, once, and has been changed
 */
bool handler_teach(const void *area);

/**
 * While the device stands still. If other code has come to the target of the handler's jump, the
 * driver's own instruction is restored.
 * Return: true if the handler is as handler_teach() has left it
 */
bool handler_is_taught(void);

#endif
