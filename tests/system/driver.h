// What the system tests share: the driver opened in the calling process, the test kernels, short
// forms of the calls. The tests are linked with libcuda.so.1 by name and run unchanged against the
// shim and against NVIDIA's library.
//
// Kernels come from FRMPS_TEST_KERNELS: a shared object for the host backend, a cubin or PTX file
// for a GPU.

#ifndef FRMPS_TESTS_SYSTEM_DRIVER_H
#define FRMPS_TESTS_SYSTEM_DRIVER_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#define CUDA_API_CALLER
#include "client/entry/api.h"

/* Says nothing when all is well: libcheck writes a message for every assertion, and a child that is
 * killed in the middle of one would spoil the test's report. */
#define ck_cuda(call)                                                                                        \
	do {                                                                                                 \
		CUresult result_ = (call);                                                                   \
		if (result_ != CUDA_SUCCESS)                                                                 \
			ck_abort_msg("%s is %d", #call, (int)result_);                                       \
	} while (0)

/** Whether the library is NVIDIA's (FRMPS_TEST_NATIVE): there is no service. */
bool is_native(void);
/** True if the service has the host backend. */
bool is_without_device(void);

/** cuInit, device 0's primary context current. FRMPS_TEST_BESIDE: the ordinal of another device
 * instead, beside contexts on those before. Fails the test otherwise. */
void driver_attach(void);
/** The same, and the kernels loaded. */
void driver_open(void);

/** A kernel of the test module. */
CUfunction kernel(const char *name);

/** The module with the kernels, loaded once per process. */
CUmodule kernels(void);

/** Launches with a one-dimensional grid. @arguments: as for cuLaunchKernel. */
CUresult launch(const char *name, unsigned blocks, unsigned threads, CUstream stream, void **arguments);

/** What the kernel `mix` does to one word. */
uint32_t mixed(uint32_t in, uint32_t round, uint32_t position);

/** Device memory that holds the words 0, 1, 2, … times `factor`. */
CUdeviceptr device_words(uint64_t count, uint32_t factor);

/** A pinned word, and 4092 bytes behind it, that kernels and the test both see. */
uint32_t *shared_word(void);
/** Runs until the word has the value. */
CUresult launch_spin(uint32_t *word, uint32_t value, CUstream stream);

/** Whole file with a NUL behind it; fails the test if it cannot be read. The caller frees it. */
void *read_file(const char *path);
/** A fat binary with one text, which the host backend compiles to the test kernels.
 * @behaviour: what its first line says behind the name. Return: from malloc() */
void *kernels_source(const char *behaviour);

#endif
