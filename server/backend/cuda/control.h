// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Controls that the driver asks of the kernel-mode driver, as far as contain.c and readahead.c look into
// them. Names and numbers are those of NVIDIA's open kernel modules (nv_escape.h, nvos.h, ctrl83dedebug.h,
// ctrl906f.h).

#ifndef FRMPS_SERVER_BACKEND_CUDA_CONTROL_H
#define FRMPS_SERVER_BACKEND_CUDA_CONTROL_H

#include <stdint.h>

/* An ioctl of the kernel-mode driver, and the one among them that is a control. */
#define DRIVER_TYPE    'F'
#define DRIVER_CONTROL 0x2a

enum control_command {
	CONTROL_READ = 0x83de0315,   /* NV83DE_CTRL_CMD_DEBUG_READ_MEMORY */
	CONTROL_STOP = 0x83de0317,   /* NV83DE_CTRL_CMD_DEBUG_SUSPEND_CONTEXT */
	CONTROL_LET_GO = 0x83de0318, /* NV83DE_CTRL_CMD_DEBUG_RESUME_CONTEXT */
	CONTROL_RESET = 0x906f0102,  /* NV906F_CTRL_CMD_RESET_CHANNEL */
};

/* NVOS54_PARAMETERS */
struct control {
	uint32_t client, object, command, flags;
	uint64_t parameters;
	uint32_t size, status; /* status: NV_STATUS, 0 is success */
};

/* NV83DE_CTRL_DEBUG_READ_MEMORY_PARAMS */
struct control_read {
	uint32_t memory, length; /* length: bytes wished, then read */
	uint64_t offset, buffer;
};

/* The system call, or what a test puts in its place. Return: as ioctl(). */
typedef int control_execute_fn(int fd, unsigned long request, void *argument);

#endif
