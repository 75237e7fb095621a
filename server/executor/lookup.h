// Looking up functions and variables of modules. The first lookup of a function that the driver has
// loaded puts code onto the device, and so needs a gap (module_worker.c). Module thread.

#ifndef FRMPS_SERVER_EXECUTOR_LOOKUP_H
#define FRMPS_SERVER_EXECUTOR_LOOKUP_H

#include <stdbool.h>

struct job;

/** FindFunction. Answers the job, or leaves it to the queue. */
void lookup_function(struct job *job);
/** FindGlobal, in the same way. */
void lookup_global(struct job *job);
/** Return: true if the job may be done in a gap that was made for another job. */
bool lookup_shares_gap(const struct job *job);

#endif
