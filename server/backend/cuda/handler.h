// The trap handler: the driver's code on the device that every stopped warp runs. It writes the
// warp's record (warps.h), waits, and lets the warp go on behind where it was. Here it learns to
// let a warp go on elsewhere, where the record says so. One thread at a time: the one that makes
// the context, then the one that handles exceptions.

#ifndef FRMPS_SERVER_BACKEND_CUDA_HANDLER_H
#define FRMPS_SERVER_BACKEND_CUDA_HANDLER_H

#include <stdbool.h>

/**
 * Looks for the handler in the memory that the driver has made for itself, checks that it is of the
 * form that is known and works on records as warps.h describes them, and changes it. From now on a
 * warp whose record says so (warps_release()) goes on at the address that is there. Call it before
 * any kernel has run in the context: what a multiprocessor keeps of code is not changed.
 * @area: the save area's address
 * Return: whether the handler is there, once, and has been changed
 */
bool handler_teach(const void *area);

/**
 * While the device stands still. Where other code has come to what the handler jumps to, it gets
 * the driver's own instruction back.
 * Return: whether the handler is as handler_teach() has left it
 */
bool handler_is_taught(void);

#endif
