// Keeping the driver from its own reaction to a faulted kernel. The necessary knowledge of the
// driver: contain.c.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CONTAIN_H
#define FRMPS_SERVER_BACKEND_CUDA_CONTAIN_H

#include "server/backend/cuda/control.h"
#include "shm/order.h"

/** From now on the driver's reaction to a fault is seen, and blocked where exception.c handles
 * exceptions. After the context was made and exception_open(), before anything runs in the
 * context. */
void contain_arm(void);
/** Only for the end and for tests. */
void contain_disarm(void);

/** The calling thread is the service's own: its requests to the kernel-mode driver are no sign of
 * anything. */
void contain_enter_thread(void);

/** An ioctl() of this process. Exported for tests. @execute: the system call */
int contain_ioctl(int fd, unsigned long request, void *argument, control_execute_fn *execute);

/* Threads of the driver that are blocked for ever, for tests. */
extern word32 contain_parked;

#endif
