// frmpsctl checkpoint: a program in files (archive.h), while others go on.
//
// The service copies the program's device memory to files, and gives the tool these and records.
// CRIU saves the processes and leaves them stopped. Then all go on, while the tool stores the
// content of the files, which nobody changes any more. With --end the processes stay stopped until
// that is done, and end. The folder's name ends in .part until the folder is complete. With --since
// the folder shares files with an earlier one (earlier.h).
//
// Blocking. A single thread, with others for copies.

#ifndef FRMPS_SERVER_TOOLS_SAVE_H
#define FRMPS_SERVER_TOOLS_SAVE_H

#include "server/tools/command.h"

/** Saves a program: arguments SESSION DIRECTORY. Return: exit code */
int save_run(const struct call *call);

#endif
