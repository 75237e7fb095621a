// The driver of a benchmark: whatever libcuda.so.1 the loader finds, so that the same binary
// measures the real driver, stock MPS and frmps. Single-threaded set-up, then read-only. A failed
// call ends the program with the call's name: a benchmark has nothing to recover.

#ifndef FRMPS_BENCH_LIB_DRIVER_H
#define FRMPS_BENCH_LIB_DRIVER_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct driver {
#define D(symbol, name, arguments) CUresult(*name) arguments;
#include "bench/lib/driver.def"
#undef D
};

extern struct driver cu;

/** Opens libcuda.so.1, initialises the driver and makes device 0's primary context current. */
void driver_open(void);

/**
 * Loads the benchmarks' module: PTX, or the file FRMPS_BENCH_MODULE (the module for the host
 * backend).
 */
CUmodule driver_module(void);

/** Kernel by name. */
CUfunction driver_function(CUmodule module, const char *name);

/** Ends the program unless the result is success. */
void driver_check(CUresult result, const char *what);

/**
 * Whole file, NUL-terminated; ends the program if the file is not readable. The caller frees it.
 */
void *driver_read_file(const char *path);

/** Nanoseconds of CLOCK_MONOTONIC. */
uint64_t now_ns(void);

/** Value of an environment variable; `otherwise` for an unset variable. */
double driver_environment(const char *name, double otherwise);

/**
 * Starts together with other programs: prints {"name": "ready"}, reads the start time from standard
 * input (a line, ns of CLOCK_MONOTONIC) and sleeps until then; starts at once without such a line.
 *
 * Return: the start time, ns.
 */
uint64_t driver_wait_for_start(void);

/** Sleeps until a time of CLOCK_MONOTONIC, ns; not at all if that has passed. */
void driver_sleep_until(uint64_t ns);

#endif
