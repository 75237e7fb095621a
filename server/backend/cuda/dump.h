// What the driver's dump says about a fault: which kernels faulted, where and how. Pure; any thread.

#ifndef FRMPS_SERVER_BACKEND_CUDA_DUMP_H
#define FRMPS_SERVER_BACKEND_CUDA_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More kernels than this at once are not told apart. */
#define DUMP_KERNELS_MAX 8u

/* A kernel that faulted. What the dump does not say is 0. */
struct dump_kernel {
	uint64_t module, function; /* handles of the process that wrote the dump */
	uint64_t grid;		   /* ordinal of the launch in its context */
	uint64_t pc;		   /* the instruction, or one close behind it */
	uint32_t exception;	   /* the debugger interface's number; 0: a trap or a breakpoint */
	uint32_t sm;
	uint32_t block[3];
	bool has_block;
	bool may_be_stack; /* its stack may have overflowed: it faults again when it is let go */
	bool strayed;	   /* it was executing what is no code: it faults again as often as it is let go */
	char name[128];	   /* mangled, cut if longer */
};

struct dump_report {
	uint32_t count;
	bool more; /* more kernels than there is room for; or one of these may not have faulted, but another */
	struct dump_kernel kernels[DUMP_KERNELS_MAX];
};

/**
 * Reads a dump. Nothing in it is trusted; what does not fit is as if it were not there.
 * @ret_report: at least one kernel
 * Return: 0, or -EBADMSG: it is not complete, not understood, or names no kernel
 */
int dump_read(const void *bytes, size_t size, struct dump_report *ret_report);

#endif
