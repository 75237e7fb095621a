// A compiler: a process that compiles and links the texts of one program, and nothing else. The
// driver's compiler crashes at some programs' texts; then only this process ends, and the daemon
// tries another process (session/compiling.h). See compiler.c.

#ifndef FRMPS_SERVER_COMPILER_COMPILER_H
#define FRMPS_SERVER_COMPILER_COMPILER_H

#include "server/backend/backend.h"

/**
 * Runs the compiler role until the daemon hangs up.
 * @ops: backend, not opened yet
 * @arch: of the device: 10 * major + minor
 * @control_fd: the other end is the daemon's; blocking; closed on return
 * Return: 0, the exit status of an orderly end, or 1 after a failure
 */
int compiler_main(const struct backend_ops *ops, unsigned arch, int control_fd);

#endif
