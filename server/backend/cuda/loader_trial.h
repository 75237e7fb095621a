// The trial of the service's own loader: a kernel in memory reads constants, a variable and shared
// memory, and its output is compared. When the context is made, before anything else runs.

#ifndef FRMPS_SERVER_BACKEND_CUDA_LOADER_TRIAL_H
#define FRMPS_SERVER_BACKEND_CUDA_LOADER_TRIAL_H

#include <stdbool.h>

/** True if the output is correct. Leaves nothing behind but memory for code. */
bool loader_is_proved(void);

#endif
