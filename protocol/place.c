// See place.h.

#include "protocol/place.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/socket.h"

/* Folders in which stock MPS has its sockets: of root's daemon, and of a user's (or of any daemon
 * of older drivers). */
static const char *const mps_folders[2] = {"/run/nvidia-mps", "/tmp/nvidia-mps"};

/* A point, any number, and the NUL. */
#define NUMBER_BYTES 12

/* Return: the value of a variable; NULL if unset or empty */
static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static void name_in(const char *folder, char path[PLACE_BYTES])
{
	snprintf(path, PLACE_BYTES, "%s/" PLACE_NAME, folder);
}

static bool exists_in(const char *folder, char path[PLACE_BYTES])
{
	name_in(folder, path);
	return !access(path, F_OK);
}

/* Return: true if a variable names the place */
static bool is_named(char path[PLACE_BYTES])
{
	const char *socket = variable("FRMPS_SOCKET"), *folder = variable("CUDA_MPS_PIPE_DIRECTORY");

	if (socket)
		snprintf(path, PLACE_BYTES, "%s", socket);
	else if (folder)
		name_in(folder, path);
	return socket || folder;
}

/* True if another user could have made the socket that the variable of stock MPS names. */
static bool is_strangers(const char *path)
{
	return !variable("FRMPS_SOCKET") && !access(path, F_OK) &&
	       !socket_directory_is_trusted(variable("CUDA_MPS_PIPE_DIRECTORY"));
}

int place_find_in(const char *const folders[2], char path[PLACE_BYTES])
{
	const char *runtime = variable("XDG_RUNTIME_DIR");

	if (is_named(path))
		return is_strangers(path) ? PLACE_E_UNTRUSTED : 0;
	snprintf(path, PLACE_BYTES, PLACE_SYSTEM);
	if (!access(path, F_OK) || (runtime && exists_in(runtime, path)))
		return 0;
	for (unsigned i = 0; i < 2; i++)
		if (exists_in(folders[i], path) && socket_directory_is_trusted(folders[i]))
			return 0;
	snprintf(path, PLACE_BYTES, PLACE_SYSTEM);
	return 0;
}

int place_find(char path[PLACE_BYTES])
{
	return place_find_in(mps_folders, path);
}

int place_find_device(unsigned number, char path[PLACE_BYTES])
{
	char first[PLACE_BYTES];
	int r = place_find(first);

	/* Longer than any socket's name. */
	if (!place_of_device(first, number, path))
		strcpy(path, first);
	return r || !variable("CUDA_MPS_PIPE_DIRECTORY") || !is_strangers(path) ? r : PLACE_E_UNTRUSTED;
}

void place_begin_in(const char *const folders[2], char path[PLACE_BYTES])
{
	if (is_named(path))
		return;
	for (unsigned i = 0; i < 2; i++) {
		name_in(folders[i], path);
		if (socket_directory_is_trusted(folders[i]))
			return;
	}
	name_in(folders[geteuid() ? 1 : 0], path);
}

void place_begin(char path[PLACE_BYTES])
{
	place_begin_in(mps_folders, path);
}

bool place_of_device(const char *first, unsigned number, char path[PLACE_BYTES])
{
	size_t length = strlen(first);

	if (length >= PLACE_BYTES - NUMBER_BYTES)
		return false;
	memcpy(path, first, length + 1);
	if (number)
		snprintf(path + length, NUMBER_BYTES, ".%u", number);
	return true;
}
