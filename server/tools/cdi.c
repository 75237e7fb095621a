// See cdi.h. Version 0.5.0 of the interface is the oldest that has all that is used here.

#include "server/tools/cdi.h"

#include <stdio.h>
#include <string.h>

#define CDI_BEHIND_MAX 2000u
#define ALNUM	       "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

/* The folder is mounted and not the socket: a service that starts again makes a new socket. With
 * write access, a container's root could replace the socket by another, for everybody; connecting
 * needs no write access. */
static json_t *make_mount(const char *path)
{
	return json_pack("{ss ss s[ssss]}", "hostPath", path, "containerPath", path, "options", "ro",
		"nosuid", "nodev", "bind");
}

bool cdi_is_name(const char *name)
{
	const size_t length = strspn(name, ALNUM "_-.:");

	return length && !name[length] && strchr(ALNUM, *name) && strchr(ALNUM, name[length - 1]);
}

json_t *cdi_make(const char *name, const char *socket, const char *library, const char *behind)
{
	char folder[512], socket_variable[600], library_variable[2600];
	const char *slash = strrchr(socket, '/');

	if (*socket != '/' || *library != '/' || slash == socket || slash - socket >= (long)sizeof(folder) ||
		strlen(library) >= sizeof(folder) || strlen(behind) > CDI_BEHIND_MAX)
		return NULL;
	snprintf(folder, sizeof(folder), "%.*s", (int)(slash - socket), socket);
	snprintf(socket_variable, sizeof(socket_variable), "FRMPS_SOCKET=%s", socket);
	snprintf(library_variable, sizeof(library_variable), "LD_LIBRARY_PATH=%s%s%s", library,
		*behind ? ":" : "", behind);
	return json_pack("{ss ss s[{ss s{s[ss] s[oo]}}]}", "cdiVersion", "0.5.0", "kind", "frmps/gpu",
		"devices", "name", name, "containerEdits", "env", socket_variable, library_variable, "mounts",
		make_mount(folder), make_mount(library));
}
