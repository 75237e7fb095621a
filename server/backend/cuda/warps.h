// The save area: the driver's trap handler on the device leaves the state of each stopped warp
// there, and reads if the warp may go on. The save area is host memory, at the same address for
// processor and device. Pure functions on that memory; a single thread at a time.

#ifndef FRMPS_SERVER_BACKEND_CUDA_WARPS_H
#define FRMPS_SERVER_BACKEND_CUDA_WARPS_H

#include <stdbool.h>
#include <stdint.h>

/* Measured for devices of compute capability 9.0 (H100, H200) and driver 580; nothing documents
 * this. Each record is checked against its own place before its contents are believed. */
#define WARPS_SMS	   144u
#define WARPS_PER_SM	   64u
#define WARPS_COUNT	   (WARPS_SMS * WARPS_PER_SM)
#define WARPS_HEAD_BYTES   0x10u
#define WARPS_RECORD_BYTES 0x2a0u
#define WARPS_BYTES	   (WARPS_HEAD_BYTES + WARPS_COUNT * (WARPS_RECORD_BYTES + 1))

/* Fields of a record: offsets. handler.c checks that the driver's code on the device writes them
 * there. */
#define WARPS_ORDINAL	0x218u /* of the launch */
#define WARPS_BLOCK	0x220u /* 3 words */
#define WARPS_TASK	0x238u
#define WARPS_REASON	0x244u
#define WARPS_PLACE	0x248u
#define WARPS_ERROR	0x264u
#define WARPS_ERROR_AT	0x268u
#define WARPS_RETURN_TO 0x288u
/* Bytes of a record: not 0 while the warp waits; not 0 to go on elsewhere (not the driver's:
 * handler.h). */
#define WARPS_WAITS  0x29du
#define WARPS_LEAVES 0x29eu

/* The state of a warp: the kind of its exception, or, where that is 0, one of these. All 0: stopped
 * for other warps, on its multiprocessor or elsewhere. */
#define WARP_KIND   0x0000ffffu
#define WARP_TRAP   0x01000000u
#define WARP_ASSERT 0x03000000u

/* Reasons of the stop: bits. All warps of a multiprocessor with an exception have that one's. With
 * none but these two there was no exception. */
#define WARP_HALTED 0x10u
#define WARP_HELD   0x04u /* again, as soon as the warp went on */

struct warp {
	uint32_t index; /* WARPS_PER_SM * multiprocessor + slot */
	uint32_t reason, error;
	uint64_t error_at;  /* program counter of the exception; 0: not known */
	uint64_t return_to; /* continuation address */
	uint64_t task;	    /* virtual address of the grid's descriptor */
	uint64_t grid;	    /* ordinal of the launch in the context */
	uint32_t block[3];
};

/**
 * The next stopped warp, from an index on.
 * @area: WARPS_BYTES
 * Return: its index; WARPS_COUNT: none
 */
uint32_t warps_next(const void *area, uint32_t from);

bool warps_is_stopped(const void *area, uint32_t index);

/** True if a warp is not stopped, and is still in the save area, because the device runs another
 * context. */
bool warps_is_away(const void *area, uint32_t index);

/** Reads a stopped warp, of the driver's own kernels as well. Return: true if the record belongs to
 * that place */
bool warps_read(const void *area, uint32_t index, struct warp *ret_warp);

/** Only the task of a stopped warp, whatever its record. */
uint64_t warps_task(const void *area, uint32_t index);

/**
 * The warp goes on at the next resume, before which the caller makes the change visible to the
 * device.
 * @to: an address of code to go on at (handler.h); 0: in place
 */
void warps_release(void *area, uint32_t index, uint64_t to);

#endif
