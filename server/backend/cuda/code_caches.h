// The instruction caches of the multiprocessors keep code that has run, whatever is written there
// later (code_memory.h). A kernel that runs in each part of each multiprocessor tells them to
// forget everything. What runs meanwhile goes on, and fetches its code anew: an H200 loses 10 us of
// its time. Where multiprocessors have no room for the kernel, because other kernels fill them, the
// turn ends later, and what rests goes on resting.
//
// The module thread; opened and closed with the context.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CODE_CACHES_H
#define FRMPS_SERVER_BACKEND_CUDA_CODE_CACHES_H

#include <stdbool.h>

#include "server/backend/cuda/driver.h"
#include "server/backend/cuda/trampoline.h"

/**
 * When the context is made, before anything else runs, while code in memory runs as it should.
 * Tries it: other code where code has run. Where that fails, an address is given to code once, and
 * the log has the reason.
 * @enter: carries CODE_CACHES_CARRIED bytes or more; stays until code_caches_close()
 */
#define CODE_CACHES_CARRIED 16u
void code_caches_open(CUdevice device, const struct trampoline *enter);
void code_caches_close(void);

/** Gives the caches a turn when it is time, and takes note of the end of one. Waits for nothing
 * that runs. */
void code_caches_tend(void);
/**
 * For somebody who has been refused a place: gives the caches turns until nothing rests that had
 * been given back before, for some milliseconds at most.
 * Return: true if that is so
 */
bool code_caches_renew(void);

#endif
