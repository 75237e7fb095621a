// Cooperative launches: all blocks run at the same time. Any thread.

#ifndef FRMPS_CLIENT_SUBMIT_COOPERATIVE_H
#define FRMPS_CLIENT_SUBMIT_COOPERATIVE_H

#include "protocol/cuda_abi.h"

struct client_stream;
struct launch;

/**
 * Checks that the stream's multiprocessors hold all blocks of a checked launch at once. Asks the
 * service about a kernel's first launch. @stream: NULL: those of the current context count
 * Return: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, or the error of the question
 */
CUresult cooperative_check(const struct launch *launch, const struct client_stream *stream);

#endif
