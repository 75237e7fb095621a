// A specification of the Container Device Interface: the needs of a container that uses the
// service. Runtimes that know the interface (docker, podman, containerd, CRI-O) read the
// specification, and a container asks for the device by name.

#ifndef FRMPS_SERVER_TOOLS_CDI_H
#define FRMPS_SERVER_TOOLS_CDI_H

#include <jansson.h>
#include <stdbool.h>

/** True if a device may have this name: runtimes refuse a specification with another name. */
bool cdi_is_name(const char *name);

/**
 * Makes the specification: the device frmps/gpu=NAME mounts the socket's folder and the library's,
 * and sets the variables that lead a program to both. No device file: the program never talks to
 * the driver.
 * @name: of the device
 * @socket, library: absolute paths of the service's socket and of the folder with libcuda.so.1
 * @behind: folders for LD_LIBRARY_PATH after the library's, because the specification's variable
 *   replaces the image's; empty: none
 * Return: the document, the caller's; NULL without memory, or if a path is not absolute
 */
json_t *cdi_make(const char *name, const char *socket, const char *library, const char *behind);

#endif
