// Finding the shim. See shim.h.

#include "server/tools/shim.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/shim_uuid.h"

/* From the directory of the program. First the build folder (programs in server/), then an
 * installation. */
static const char *const places[] = {
	"../client",
	"../../client",
	"../lib/frmps",
	"../lib64/frmps",
#ifdef FRMPS_SHIM_INSTALL_DIR
	FRMPS_SHIM_INSTALL_DIR,
#endif
};

static char *check_directory(const char *directory)
{
	char library[2 * PATH_MAX + 16];

	snprintf(library, sizeof(library), "%s/libcuda.so.1", directory);
	return access(library, R_OK) == 0 ? realpath(directory, NULL) : NULL;
}

static bool own_directory(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);

	if (n < 0)
		return false;
	path[n] = '\0';
	dirname(path);
	return true;
}

/* @candidates: seen from the directory of the program */
static char *find_beside(const char *const *candidates, size_t count)
{
	char own[PATH_MAX], path[PATH_MAX + 32];

	if (!own_directory(own, sizeof(own)))
		return NULL;
	for (size_t i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", own, candidates[i]);
		if (access(path, X_OK) == 0)
			return realpath(path, NULL);
	}
	return NULL;
}

char *shim_find_server(void)
{
	static const char *const servers[] = {
		"frmps-server", "../sbin/frmps-server", "../../../sbin/frmps-server"};

	return find_beside(servers, sizeof(servers) / sizeof(servers[0]));
}

char *shim_find_plugin(void)
{
	static const char *const folders[] = {
		"criu", "../server/criu", "../lib/frmps/criu", "../lib64/frmps/criu"};

	return find_beside(folders, sizeof(folders) / sizeof(folders[0]));
}

bool shim_is_ours(const char *library)
{
	static const uint8_t id[] = FRMPS_SHIM_UUID_BYTES;
	int fd = open(library, O_RDONLY | O_CLOEXEC);
	struct stat status;
	bool found = false;

	if (fd >= 0 && !fstat(fd, &status) && status.st_size) {
		void *at = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

		found = at != MAP_FAILED && memmem(at, (size_t)status.st_size, id, sizeof(id));
		if (at != MAP_FAILED)
			munmap(at, (size_t)status.st_size);
	}
	if (fd >= 0)
		close(fd);
	return found;
}

char *shim_directory(void)
{
	const char *given = getenv("FRMPS_SHIM_DIR");
	char own[PATH_MAX], path[2 * PATH_MAX], *found = NULL;

	if (given && *given)
		return check_directory(given);
	if (!own_directory(own, sizeof(own)))
		return NULL;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !found; i++) {
		if (places[i][0] == '/')
			snprintf(path, sizeof(path), "%s", places[i]);
		else
			snprintf(path, sizeof(path), "%s/%s", own, places[i]);
		found = check_directory(path);
	}
	return found;
}
