// Requests of the driver to the kernel-mode driver, as far as contain.c and channels.c inspect
// them, or the service makes them itself. Names and numbers are those of NVIDIA's open kernel
// modules (nv_escape.h, nvos.h, ctrl83dedebug.h, ctrl906f.h, ctrl2080fifo.h, cl2080.h, cl506f.h).

#ifndef FRMPS_SERVER_BACKEND_CUDA_CONTROL_H
#define FRMPS_SERVER_BACKEND_CUDA_CONTROL_H

#include <stdint.h>

/* The ioctls of the kernel-mode driver, and among them those that free an object, control an object
 * and make an object. */
#define DRIVER_TYPE    'F'
#define DRIVER_FREE    0x29
#define DRIVER_CONTROL 0x2a
#define DRIVER_ALLOC   0x2b
#define DRIVER_WRAPPED 0xd3 /* NV_ESC_IOCTL_XFER_CMD: any ioctl, by pointer */

enum control_command {
	CONTROL_READ = 0x83de0315,   /* NV83DE_CTRL_CMD_DEBUG_READ_MEMORY */
	CONTROL_STOP = 0x83de0317,   /* NV83DE_CTRL_CMD_DEBUG_SUSPEND_CONTEXT */
	CONTROL_LET_GO = 0x83de0318, /* NV83DE_CTRL_CMD_DEBUG_RESUME_CONTEXT */
	CONTROL_RESET = 0x906f0102,  /* NV906F_CTRL_CMD_RESET_CHANNEL */
	CONTROL_DISABLE = 0x2080110b /* NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS */
};

enum control_class {
	CLASS_SUBDEVICE = 0x2080,    /* NV20_SUBDEVICE_0 */
	CLASS_CHANNEL_FIRST = 0x506f /* NV50_CHANNEL_GPFIFO; those of later architectures are greater */
};

/* The beginning of nv_ioctl_xfer_t. */
struct control_wrapped {
	uint32_t number, size;
};

/* The beginning of NVOS21_PARAMETERS and NVOS64_PARAMETERS. */
struct control_alloc {
	uint32_t client, parent, object, class;
};

/* NVOS00_PARAMETERS */
struct control_free {
	uint32_t client, parent, object, status;
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

/* NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS. Without `only_scheduling` and `event` the control
 * returns when none of the channels is on the hardware. */
#define CONTROL_CHANNELS_MAX 64u
struct control_disable {
	uint8_t disable, pad[3];
	uint32_t count;
	uint8_t only_scheduling, rewind, more[6];
	uint64_t event;
	uint32_t clients[CONTROL_CHANNELS_MAX], objects[CONTROL_CHANNELS_MAX];
};

/* The system call, or a test's replacement. Return: as ioctl(). */
typedef int control_execute_fn(int fd, unsigned long request, void *argument);
control_execute_fn control_execute; /* the system call (channels.c) */

#endif
