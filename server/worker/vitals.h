// The kernel's view of a process: its processor time, whether it ends, and its start. Any thread.

#ifndef FRMPS_SERVER_WORKER_VITALS_H
#define FRMPS_SERVER_WORKER_VITALS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vitals {
	uint64_t processor_ms; /* used so far, in user and in kernel mode, all threads together */
	bool is_ending;	       /* true of all its threads: none is held by a system call */
};

/** Return: false if unknown; *ret_vitals is written only on success. */
bool vitals_read(pid_t pid, struct vitals *ret_vitals);

/** Start of a process, in the kernel's ticks: another process with the same number has another
 * start. 0: unknown */
uint64_t vitals_start(pid_t pid);

#endif
