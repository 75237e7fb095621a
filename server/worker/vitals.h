// What the kernel says of a process from outside: whether it computes, whether it ends, and when it
// started. Any thread.

#ifndef FRMPS_SERVER_WORKER_VITALS_H
#define FRMPS_SERVER_WORKER_VITALS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vitals {
	uint64_t processor_ms; /* that it has had, in user and in kernel mode, all its threads together */
	bool is_ending;	       /* all its threads are: none is held by a system call */
};

/** Return: whether it is known; *ret_vitals is only then written. */
bool vitals_read(pid_t pid, struct vitals *ret_vitals);

/** When a process started, in the kernel's ticks: another one that gets its number has another
 * start. 0: it cannot be seen */
uint64_t vitals_start(pid_t pid);

#endif
