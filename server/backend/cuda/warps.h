// The save area: where the driver's trap handler on the device leaves what it knows of each warp
// that it has stopped, and reads whether the warp may go on. It is host memory that the processor
// and the device see alike. Pure functions on that memory; one thread at a time.

#ifndef FRMPS_SERVER_BACKEND_CUDA_WARPS_H
#define FRMPS_SERVER_BACKEND_CUDA_WARPS_H

#include <stdbool.h>
#include <stdint.h>

/* Measured for devices of compute capability 9.0 (H100, H200) and driver 580; nothing documents it.
 * Each record is checked against its own place before anything in it is believed. */
#define WARPS_SMS	   144u
#define WARPS_PER_SM	   64u
#define WARPS_COUNT	   (WARPS_SMS * WARPS_PER_SM)
#define WARPS_HEAD_BYTES   0x10u
#define WARPS_RECORD_BYTES 0x2a0u
#define WARPS_BYTES	   (WARPS_HEAD_BYTES + WARPS_COUNT * (WARPS_RECORD_BYTES + 1))

/* Fields of a record: offsets. handler.c looks whether the driver's code on the device writes them
 * there. */
#define WARPS_ORDINAL	0x218u /* of the launch */
#define WARPS_BLOCK	0x220u /* 3 words */
#define WARPS_TASK	0x238u
#define WARPS_REASON	0x244u
#define WARPS_PLACE	0x248u
#define WARPS_ERROR	0x264u
#define WARPS_ERROR_AT	0x268u
#define WARPS_RETURN_TO 0x288u
/* Bytes of a record: not 0 while the warp waits; not 0 if it goes on elsewhere (not the driver's:
 * handler.h). */
#define WARPS_WAITS  0x29du
#define WARPS_LEAVES 0x29eu

/* What a warp has done: the kind of its exception, or, where that is 0, one of these. 0 in all: it
 * was stopped for others, on its multiprocessor or elsewhere. */
#define WARP_KIND   0x0000ffffu
#define WARP_TRAP   0x01000000u
#define WARP_ASSERT 0x03000000u

/* Why it was stopped: bits. All warps of a multiprocessor with an exception have that one's. With
 * none but these two there was no exception. */
#define WARP_HALTED 0x10u
#define WARP_HELD   0x04u /* again, as soon as it went on */

struct warp {
	uint32_t index; /* WARPS_PER_SM * multiprocessor + slot */
	uint32_t reason, error;
	uint64_t error_at;  /* program counter of the exception; 0: not known */
	uint64_t return_to; /* where it goes on */
	uint64_t task;	    /* virtual address of its grid's descriptor */
	uint64_t grid;	    /* ordinal of the launch in the context */
	uint32_t block[3];
};

/**
 * The next warp that is stopped, from an index on.
 * @area: WARPS_BYTES
 * Return: its index; WARPS_COUNT: there is none
 */
uint32_t warps_next(const void *area, uint32_t from);

bool warps_is_stopped(const void *area, uint32_t index);

/** Whether a warp is not stopped, and is still where the device has saved it to make room for
 * another context. */
bool warps_is_away(const void *area, uint32_t index);

/** Reads a stopped warp, of the driver's own kernels as well. Return: whether the record is one of
 * that place */
bool warps_read(const void *area, uint32_t index, struct warp *ret_warp);

/** The task alone of a stopped warp, whatever its record is. */
uint64_t warps_task(const void *area, uint32_t index);

/**
 * The warp goes on at the next resume, before which the caller makes sure that the device sees it.
 * @to: an address of code, where it goes on (handler.h); 0: where it was
 */
void warps_release(void *area, uint32_t index, uint64_t to);

#endif
