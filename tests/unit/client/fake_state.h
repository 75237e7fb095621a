// The rest of the shim as tests of client/entry/ want it: two contexts, a settable device list, a
// module with functions. One test runs per process, so nothing is ever reset.

#ifndef FRMPS_TESTS_UNIT_CLIENT_FAKE_STATE_H
#define FRMPS_TESTS_UNIT_CLIENT_FAKE_STATE_H

#include "protocol/cuda_abi.h"

/* The primary context of device 0, and another one. */
#define FAKE_PRIMARY ((CUcontext)0x1000)
#define FAKE_OTHER   ((CUcontext)0x2000)
/* A green context of device 0. */
#define FAKE_GREEN ((CUcontext)0x2800)
/* A handle that was never a context. */
#define FAKE_STALE	      ((CUcontext)0x3000)
#define FAKE_MODULE	      ((CUmodule)0x4000)
#define FAKE_MODULE_FUNCTIONS 3

/* What context_current() answers; NULL at start. */
extern CUcontext fake_current;
/* How many devices there are; 0 at start, as before cuInit. */
extern int fake_devices;

#endif
