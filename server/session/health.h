// The state of the device, as shown to everybody; daemon/device.c and daemon/device_drain.c decide.
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_HEALTH_H
#define FRMPS_SERVER_SESSION_HEALTH_H

#include <stdint.h>

/* An operator has it drained (daemon/device_drain.h): DRAINING and DRAINED. */
enum device_state { DEVICE_SERVING, DEVICE_FAILED, DEVICE_DRAINING, DEVICE_DRAINED };

struct device_health {
	enum device_state state;
	int32_t code;	  /* of FAILED: the CUresult that programs get */
	char reason[256]; /* of FAILED */
};

#endif
