// LoadModule. See load.c.

#ifndef FRMPS_SERVER_EXECUTOR_LOAD_H
#define FRMPS_SERVER_EXECUTOR_LOAD_H

#include "server/executor/job.h"

/** Loads a module, or has it compiled first. Module thread; answers, perhaps later. */
void load_module(struct job *job);

#endif
