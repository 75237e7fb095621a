// Reasons why a program bypasses the service's library although LD_LIBRARY_PATH names it: the
// loader looks first in the folders of an executable's DT_RPATH, also for libraries that are opened
// later, and loads a library that is linked by its full path from there. (The folders of DT_RUNPATH
// come after LD_LIBRARY_PATH.) Also finds the processes that have bypassed our library.

#ifndef FRMPS_SERVER_TOOLS_PAST_H
#define FRMPS_SERVER_TOOLS_PAST_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

enum past {
	PAST_NOTHING,
	PAST_FOLDER, /* a library that was loaded before, by the name libcuda.so.1, is taken instead */
	PAST_NAME,   /* nothing helps */
};

/**
 * Looks at an executable. A file that cannot be read, or is not for this machine, has no reason.
 * @ret_library: another libcuda.so.1, which the program would load
 */
enum past past_of_program(const char *path, char ret_library[PATH_MAX]);

/** The interpreter of a script: the path in its first line. Return: false if the file is no
 * script. */
bool past_interpreter(const char *script, char ret_path[PATH_MAX]);

/**
 * Calls `found` for each process, except the service's own, that has another libcuda.so.1 than the
 * service's in its memory. Only root sees other users' processes.
 * @root: in front of /proc
 */
void past_of_processes(
	const char *root, void (*found)(void *context, pid_t pid, const char *name), void *context);

#endif
