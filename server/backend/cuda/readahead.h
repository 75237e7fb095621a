// The device's state, read ahead of the driver while the multiprocessors stand still: readahead.c says why.
// In an executor; called by the driver's threads (contain.c), any of them.

#ifndef FRMPS_SERVER_BACKEND_CUDA_READAHEAD_H
#define FRMPS_SERVER_BACKEND_CUDA_READAHEAD_H

#include "server/backend/cuda/control.h"

/**
 * Executes a CONTROL_READ, or answers it from what was read ahead: the same bytes, as long as the memory
 * stands still. Return: as `execute`.
 */
int readahead_read(int fd, unsigned long request, struct control *control, control_execute_fn *execute);

/** What was read ahead may not be true any more. */
void readahead_forget(void);

#endif
