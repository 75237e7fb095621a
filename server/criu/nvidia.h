// The plugin for CRIU and its users (tools/criu.c).

#ifndef FRMPS_SERVER_CRIU_NVIDIA_H
#define FRMPS_SERVER_CRIU_NVIDIA_H

/* How the paths begin that the plugin saves. */
#define CRIU_NVIDIA_FILES "/dev/nvidia"
/* The plugin's file among CRIU's images. */
#define CRIU_NVIDIA_LIST "nvidia.list"

#endif
