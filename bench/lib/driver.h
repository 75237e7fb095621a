// The driver as a benchmark sees it: whatever libcuda.so.1 the loader finds, so that one binary
// measures the real driver, stock MPS and frmps alike. Single-threaded set-up, then read-only.
// Everything that fails ends the program with the call's name: a benchmark has nothing to recover.

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

/** Opens libcuda.so.1, initialises it and makes device 0's primary context current. */
void driver_open(void);

/** Loads the benchmarks' module: PTX, or the file named by FRMPS_BENCH_MODULE (the host backend's
 * form of it). */
CUmodule driver_module(void);

/** Kernel by name. */
CUfunction driver_function(CUmodule module, const char *name);

/** Ends the program unless the result is success. */
void driver_check(CUresult result, const char *what);

/** Whole file, NUL-terminated; ends the program if it cannot be read. The caller frees it. */
void *driver_read_file(const char *path);

/** Nanoseconds of CLOCK_MONOTONIC. */
uint64_t now_ns(void);

/** Value of an environment variable; `otherwise` if it is not set. */
double driver_environment(const char *name, double otherwise);

/** Begins together with other programs: prints {"name": "ready"}, reads the moment to begin from
 * standard input (a line, ns of CLOCK_MONOTONIC) and sleeps until then; begins at once where there
 * is no such line.
 *
 * Return: that moment, ns. */
uint64_t driver_wait_for_start(void);

/** Sleeps until a moment of CLOCK_MONOTONIC, ns; not at all if it has passed. */
void driver_sleep_until(uint64_t ns);

#endif
