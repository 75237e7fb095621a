// The health of the device, as shown to everybody; daemon/device.c decides. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_SESSION_HEALTH_H
#define FRMPS_SERVER_SESSION_HEALTH_H

#include <stdint.h>

enum device_state { DEVICE_SERVING, DEVICE_FAILED };

struct device_health {
	enum device_state state;
	int32_t code;	  /* of FAILED: the CUresult that programs get */
	char reason[256]; /* of FAILED */
};

#endif
