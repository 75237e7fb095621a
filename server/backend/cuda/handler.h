// The trap handler: the driver's code on the device that every stopped warp runs. It writes the warp's record (warps.h),
// waits, and lets the warp go on behind where it was. Here it learns to end a warp instead, where the record says so.
// One thread at a time: the one that makes the context, then the one that handles exceptions.

#ifndef FRMPS_SERVER_BACKEND_CUDA_HANDLER_H
#define FRMPS_SERVER_BACKEND_CUDA_HANDLER_H

#include <stdbool.h>

/**
 * Looks for the handler in the memory that the driver has made for itself, and checks that it is of the form that is known
 * and works on records as warps.h describes them. Nothing is changed.
 * @area: the save area's address
 * Return: whether it is there, once
 */
bool handler_find(const void *area);

/**
 * From now on a warp whose record says so (warps_release()) ends when it would go on. While the device stands still;
 * the first time it writes, and again where the driver has put its own code back.
 * Return: whether the handler does so
 */
bool handler_teach(void);

#endif
