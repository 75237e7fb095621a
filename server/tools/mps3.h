// The verbs of nvidia-cuda-mps-control in protocol 3 (mps3.def): MODULE VERB, then names and words
// --KEY=VALUE. They act like the verbs of mps.h. A server has a name there: here the login name of
// its user, followed by _SESSION if the server is for a single program. The PID works as well.
// Words without a meaning here are refused by name. Single thread.

#ifndef FRMPS_SERVER_TOOLS_MPS3_H
#define FRMPS_SERVER_TOOLS_MPS3_H

#include "server/tools/command.h"

/* All: the output is on standard output, the reason of a failure on standard error. Return: exit
 * code */

int mps3_server_create(const struct call *call);
int mps3_server_delete(const struct call *call);
int mps3_server_list(const struct call *call);
int mps3_server_set(const struct call *call);
int mps3_server_get(const struct call *call);
int mps3_namespace_list(const struct call *call);
int mps3_namespace_set(const struct call *call);
int mps3_namespace_get(const struct call *call);
int mps3_namespace_refuse(const struct call *call);
int mps3_client_list(const struct call *call);
int mps3_client_get(const struct call *call);
int mps3_client_terminate(const struct call *call);
int mps3_device_list(const struct call *call);
int mps3_partition_create(const struct call *call);
int mps3_partition_delete(const struct call *call);
int mps3_partition_list(const struct call *call);
int mps3_feature_describe(const struct call *call);
int mps3_feature_disable(const struct call *call);
int mps3_feature_refuse(const struct call *call);

#endif
