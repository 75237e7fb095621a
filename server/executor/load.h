// LoadModule. See load.c.

#ifndef FRMPS_SERVER_EXECUTOR_LOAD_H
#define FRMPS_SERVER_EXECUTOR_LOAD_H

#include "server/executor/job.h"

/** Loads a module, and answers. Module thread. */
void load_module(struct job *job);

#endif
