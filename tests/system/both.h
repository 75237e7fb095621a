// A service with two devices of the host backend, and what a program has on each: for tests of
// processes that work on both.

#ifndef FRMPS_TESTS_SYSTEM_BOTH_H
#define FRMPS_TESTS_SYSTEM_BOTH_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/lib/service.h"
#include "tests/system/driver.h"

#define WORDS 1031u
#define MIB   ((size_t)1 << 20)

extern struct service both_service;

void both_start(void);
/** Fixture: ends the service, if it runs. */
void both_stop(void);

/** One of the devices, for the functions of status.h, which want a service with one. */
const struct service *both_device(unsigned number);

extern struct side {
	CUcontext context;
	CUmodule module;
	CUstream stream;
	CUdeviceptr in, out; /* WORDS words: multiples of 3 + the ordinal; zeros */
} sides[2];

/** In a child: fills in a side; its context is current. */
void open_side(int ordinal);
/** The same for both, the second one last. */
void both_open(void);

/** Makes a side's context current. */
void use(int ordinal);
CUfunction function_of(int ordinal, const char *name);

/** Runs the kernel `mix` in a stream of a side. */
CUresult mix(int ordinal, CUdeviceptr out, CUdeviceptr in, uint32_t round, CUstream stream);
/** Whether words are what `mix` makes of multiples, `factor`, in a round. */
bool are_mixed(CUdeviceptr words, uint32_t factor, uint32_t round);
/** Whether a side works: mixes, and checks that. */
bool works(int ordinal, uint32_t round);

#endif
