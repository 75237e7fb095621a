// What the tests of the shim as a whole share: a loopback service, the primary context current,
// short forms.

#ifndef FRMPS_TESTS_UNIT_CLIENT_SHIM_H
#define FRMPS_TESTS_UNIT_CLIENT_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include "client/entry/api.h"
#include "protocol/command.h"
#include "tests/lib/suite.h"
#include "tests/unit/client/loopback.h"

#define OK(call)	  ck_assert_int_eq((call), CUDA_SUCCESS)
#define FAILS(call, code) ck_assert_int_eq((call), CUDA_ERROR_##code)
#define MiB		  ((size_t)1 << 20)
#define GiB		  ((size_t)1 << 30)

/* The primary context of device 0. */
extern CUcontext shim_context;

/** Fixtures: the service alone; the service, cuInit and a current context; the end, which checks
 * the service's rules. */
void shim_setup_service(void);
void shim_setup(void);
void shim_teardown(void);

/** cuInit and a current context, where the service alone is there. */
void shim_attach(void);

/** A host function: notes what it is given, as a number. */
void shim_append(void *user);
extern int shim_order[64], shim_ran; /* the numbers, and how many */
/** A stream's callback: the same, and what else it is told. */
void shim_on_stream(CUstream stream, CUresult status, void *user);
extern struct shim_callback {
	CUstream stream;
	CUresult status; /* CUDA_ERROR_UNKNOWN: not called yet */
} shim_callback;

/** Bytes that differ from place to place; the caller frees them. */
uint8_t *shim_pattern(size_t bytes, unsigned int seed);

/** Stops the service's work on the ring: everything stays there from the return on. There is a
 * session. */
void shim_pause(void);
/** Lets the service go on. */
void shim_resume(void);

#endif
