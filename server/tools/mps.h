// The verbs of nvidia-cuda-mps-control, built on the service's status and commands (mps.def). Stock
// MPS has a server process for each user; here the active executor of a domain takes this role, and
// its process is the server's number. Single thread.

#ifndef FRMPS_SERVER_TOOLS_MPS_H
#define FRMPS_SERVER_TOOLS_MPS_H

#include "server/tools/command.h"

/* All: the output is on standard output, the reason of a failure on standard error. Return: exit
 * code */

int mps_server_list(const struct call *call);
int mps_server_status(const struct call *call);
int mps_client_list(const struct call *call);
int mps_device_client_list(const struct call *call);
int mps_ps(const struct call *call);
int mps_device_query(const struct call *call);
int mps_partitions(const struct call *call);
int mps_terminate_client(const struct call *call);
/** A verb that the service itself knows. */
int mps_order(const struct call *call);

#endif
