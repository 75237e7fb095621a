// The keeper: the process that makes all physical device memory, so that no executor's death can
// lose any. It never has a context, hence nothing that a kernel does can reach it. If it dies
// nonetheless, what it has made stays with those who hold its descriptors or have it mapped
// (server/session/keeping.h). See keeper.c.

#ifndef FRMPS_SERVER_KEEPER_KEEPER_H
#define FRMPS_SERVER_KEEPER_KEEPER_H

#include "server/backend/backend.h"

/**
 * Runs the keeper role until the daemon says Shutdown or hangs up.
 * @ops: backend, not opened yet
 * @device: ordinal
 * @control_fd: the daemon's end is the other one; blocking; closed on return
 * Return: 0, the exit status of an orderly end, or 1 after a failure that was reported
 */
int keeper_main(const struct backend_ops *ops, int device, int control_fd);

#endif
