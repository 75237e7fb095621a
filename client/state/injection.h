// Tools that a program is started with: CUDA_INJECTION64_PATH names a library, which is loaded in
// the first cuInit that succeeds, and whose function InitializeInjection is called, as the driver
// does.

#ifndef FRMPS_CLIENT_STATE_INJECTION_H
#define FRMPS_CLIENT_STATE_INJECTION_H

/**
 * Loads the tool, once in the life of the process; one that cannot be loaded is logged. The tool
 * may call any entry point. Any thread.
 */
void injection_start(void);

#endif
