// Containing faults: keeping the driver from ending the context when one kernel has faulted. How, and on
// which knowledge of the driver that rests: contain.c.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CONTAIN_H
#define FRMPS_SERVER_BACKEND_CUDA_CONTAIN_H

#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "server/backend/cuda/control.h"
#include "shm/order.h"

/** From now on faults are contained if they can be. After the context was made, before anything runs in it.
 */
void contain_arm(void);
/** Only for the end and for tests. */
void contain_disarm(void);

/** The calling thread is one of ours: what it asks the kernel-mode driver for is no sign of anything. */
void contain_enter_thread(void);

/** What the driver itself would call an exception (the debugger interface's number; 0: trap). */
CUresult contain_code(uint32_t exception);

/** An ioctl() of this process. Exported for tests. @execute: the system call */
int contain_ioctl(int fd, unsigned long request, void *argument, control_execute_fn *execute);

/* Threads of the driver that are kept for ever, for tests. */
extern word32 contain_parked;

#endif
