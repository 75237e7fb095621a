// The verbs of nvidia-cuda-mps-control in protocol 3 (mps3.def): MODULE VERB, then names and words
// --KEY=VALUE. They say and do what the verbs of mps.h do. A server has a name there: here it is
// the login name of its user, with _SESSION behind it where the server is one program's alone. Its
// PID stands for it as well. What has no meaning here is refused by name. One thread.

#ifndef FRMPS_SERVER_TOOLS_MPS3_H
#define FRMPS_SERVER_TOOLS_MPS3_H

#include "server/tools/command.h"

/* All: print on standard output what the verb prints, on standard error why it does not. Return:
 * exit code */

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
