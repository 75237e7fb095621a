// Which of our modules a handle of the driver is: for dumps of faults, which name kernels by such handles.

#ifndef FRMPS_SERVER_BACKEND_CUDA_HANDLES_H
#define FRMPS_SERVER_BACKEND_CUDA_HANDLES_H

#include <stdint.h>

struct backend_module;

/** From now on the handle is this module. Any thread. Without memory the module stays unknown. */
void handles_note(uint64_t handle, struct backend_module *module);
/** Before the module is unloaded: the driver may give its handles to others. Any thread; NULL is fine. */
void handles_forget(const struct backend_module *module);
/**
 * Any thread, also while the driver is at work on a fault: nothing is waited for but another thread here.
 * NULL if it is none of ours. The module may be gone as soon as this returns, so the result is a name and
 * nothing to look into.
 */
struct backend_module *handles_find(uint64_t handle);

#endif
