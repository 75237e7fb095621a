// The driver as a benchmark sees it: whatever libcuda.so.1 the loader finds, so that one binary measures the
// real driver, stock MPS and frmps alike. Single-threaded set-up, then read-only. Everything that fails ends
// the program with the call's name: a benchmark has nothing to recover.

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

/** Loads the benchmarks' module: PTX, or the file named by FRMPS_BENCH_MODULE (the host backend's form of
 * it). */
CUmodule driver_module(void);

/** Kernel by name. */
CUfunction driver_function(CUmodule module, const char *name);

/** Ends the program unless the result is success. */
void driver_check(CUresult result, const char *what);

/** Whole file, NUL-terminated; ends the program if it cannot be read. The caller frees it. */
void *driver_read_file(const char *path);

/** Nanoseconds of CLOCK_MONOTONIC. */
uint64_t now_ns(void);

#endif
