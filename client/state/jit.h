// Options of the driver's compiler at a load: numbers go to the service, and the library fills log
// buffers from the answer. Everything lives in the caller's arrays and in struct jit on the
// caller's stack; no state.

#ifndef FRMPS_CLIENT_STATE_JIT_H
#define FRMPS_CLIENT_STATE_JIT_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

/* Most options that the service accepts. */
#define JIT_OPTIONS_MAX 32u

/* A log buffer of the program; at NULL: there is none. */
struct jit_log {
	char *at;
	uint32_t bytes;
	void **slot; /* option value of its size, overwritten with the number of filled bytes */
};

struct jit {
	struct wire_option options[JIT_OPTIONS_MAX];
	uint32_t count;
	struct jit_log info, error;
	void **wall_time; /* option value that becomes the time of the load */
	struct timespec start;
	double spent; /* milliseconds of the calls so far */
};

/**
 * Reads the program's options and starts the clock.
 * Return: CUDA_ERROR_INVALID_VALUE for unknown or too many options or missing arrays,
 * CUDA_ERROR_NOT_SUPPORTED for options that name lists in the program's memory.
 */
CUresult jit_begin(unsigned int count, const CUjit_option *options, void **values, struct jit *ret_jit);

/** Fills each log buffer with its text. */
void jit_report(struct jit *jit, const char *info, const char *error);

/** A further call begins; its time is added. */
void jit_start_clock(struct jit *jit);
/** Overwrites the time's value with the time of all calls so far, including the present call. */
void jit_report_time(struct jit *jit);

/**
 * Fills the log buffers and overwrites the values of output options. `text` is the service's log.
 */
void jit_end(struct jit *jit, bool succeeded, const char *text);

#endif
