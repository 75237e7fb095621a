// The keeper: the process that makes all physical device memory, so that no executor's death can
// lose any. The keeper never has a context, hence no kernel can reach it. Should the keeper die
// nonetheless, all memory stays with the processes that have its descriptors or mappings
// (server/daemon/keeping.h). See keeper.c.

#ifndef FRMPS_SERVER_KEEPER_KEEPER_H
#define FRMPS_SERVER_KEEPER_KEEPER_H

#include "server/backend/backend.h"

/**
 * Runs the keeper role until the daemon sends Shutdown or hangs up.
 * @ops: backend, not opened yet
 * @device: ordinal
 * @control_fd: the other end is the daemon's; blocking; closed on return
 * Return: 0, the exit status of an orderly end, or 1 after a failure that was reported
 */
int keeper_main(const struct backend_ops *ops, int device, int control_fd);

#endif
