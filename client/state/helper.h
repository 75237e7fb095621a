// The library's own threads. The first use of such a thread starts it, so that a program without
// such uses has no unknown threads.

#ifndef FRMPS_CLIENT_STATE_HELPER_H
#define FRMPS_CLIENT_STATE_HELPER_H

#include "protocol/cuda_abi.h"

/**
 * Starts a thread that runs for the rest of the process's life. Signals are blocked on the thread,
 * except for faults: the program's handlers must not run on a thread that the program did not make,
 * but a function of the program's, or a copy of its memory, may rely on a handler of faults. The
 * stack is that of the program's threads. Any thread. Return: CUDA_SUCCESS,
 * CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OPERATING_SYSTEM
 */
CUresult helper_start(void *(*run)(void *), void *argument);

#endif
