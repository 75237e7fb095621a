// The places of our libcuda.so.1 and frmps-server, from the place of a program of ours: beside it
// in the build folder or below the same prefix.

#ifndef FRMPS_SERVER_TOOLS_SHIM_H
#define FRMPS_SERVER_TOOLS_SHIM_H

#include <stdbool.h>

/**
 * The directory of our libcuda.so.1: $FRMPS_SHIM_DIR if set, else relative to this program's own
 * file.
 * Return: a string of the caller's; NULL if there is no such library, or no memory.
 */
char *shim_directory(void);

/** True if a library is the service's own. */
bool shim_is_ours(const char *library);

/** The folder of our plugin for CRIU. Return: a string of the caller's; NULL if not found, or
 * without memory. */
char *shim_find_plugin(void);

/** The path of frmps-server. Return: a string of the caller's; NULL if not found, or without
 * memory. */
char *shim_find_server(void);

#endif
