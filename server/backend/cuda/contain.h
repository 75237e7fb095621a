// Keeping the driver from what it does when a kernel has faulted. On which knowledge of the driver
// that rests: contain.c.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CONTAIN_H
#define FRMPS_SERVER_BACKEND_CUDA_CONTAIN_H

#include "server/backend/cuda/control.h"
#include "shm/order.h"

/** From now on what the driver does behind a fault is seen, and kept from it where exception.c
 * handles exceptions. After the context was made and exception_open(), before anything runs in the
 * context. */
void contain_arm(void);
/** Only for the end and for tests. */
void contain_disarm(void);

/** The calling thread is one of ours: what it asks the kernel-mode driver for is no sign of
 * anything. */
void contain_enter_thread(void);

/** An ioctl() of this process. Exported for tests. @execute: the system call */
int contain_ioctl(int fd, unsigned long request, void *argument, control_execute_fn *execute);

/* Threads of the driver that are kept for ever, for tests. */
extern word32 contain_parked;

#endif
