// Threads of the shim's own. They are made at the first use of what needs them, so that a program
// which uses none of it has no thread that it does not know.

#ifndef FRMPS_CLIENT_STATE_HELPER_H
#define FRMPS_CLIENT_STATE_HELPER_H

#include "protocol/cuda_abi.h"

/**
 * Starts a thread that runs for the rest of the process's life. Signals are blocked on it: they are
 * the program's, and its handlers do not run on a thread that it did not make, unless for a fault
 * there: a function of the program's, or a copy of its memory, may count on them. It has the stack
 * that threads of the program have. Any thread. Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY,
 * CUDA_ERROR_OPERATING_SYSTEM
 */
CUresult helper_start(void *(*run)(void *));

#endif
