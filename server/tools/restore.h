// frmpsctl restore: a program from files (archive.h).
//
// The service is asked if there is room for it. Threads begin to read the folder. CRIU makes the
// processes, stopped, with new sockets in the place of those to the service. Then the service gets
// the other ends, the files that the processes have mapped, and the program's device memory in
// files, which the threads go on to fill: the service hears how far, and brings as much to the
// device. The processes go on when all is read, and is what was written. On a failure no process is
// left.
//
// Blocking. A single thread, with others for copies.

#ifndef FRMPS_SERVER_TOOLS_RESTORE_H
#define FRMPS_SERVER_TOOLS_RESTORE_H

#include "server/tools/command.h"

/** Restores a program: argument DIRECTORY. Return: exit code */
int restore_run(const struct call *call);

#endif
