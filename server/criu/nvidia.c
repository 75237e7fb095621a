// A plugin for CRIU: files of NVIDIA's driver that a saved process has open, as by NVML. CRIU
// itself refuses a process with such a file.
//
// A restored process has the same files open, but the driver knows nothing of earlier requests:
// NVML's calls return errors until the process initialises NVML again. Programs of the service have
// nothing else of the driver.
//
// Loaded by `criu dump` and `criu restore` (--libdir), in the one thread of each. Owns the file
// nvidia.list among CRIU's images, with a line for each open file: CRIU's number of the file, its
// flags and path.

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/criu/nvidia.h"

/* The programs' interface to plugins, version 0.2 with 15 hooks: CRIU 4.2. An older CRIU calls
 * restore() without its second argument, and refuses a plugin with so many hooks. */
#define VERSION ((0u << 16) + (2u << 8) + 0u)
#define HOOKS	15u

enum hook {
	HOOK_DUMP_FILE = 2,
	HOOK_RESTORE_FILE = 3,
};

struct plugin {
	const char *name;
	int (*init)(int stage);
	void (*exit)(int stage, int result);
	unsigned version;
	unsigned hook_count;
	void *hooks[HOOKS];
};

/* CRIU's: the folder of the images. */
int criu_get_image_dir(void);

static FILE *open_list(int flags, const char *mode)
{
	int fd = openat(criu_get_image_dir(), CRIU_NVIDIA_LIST, flags | O_CLOEXEC, 0600);
	FILE *list = fd < 0 ? NULL : fdopen(fd, mode);

	if (fd >= 0 && !list)
		close(fd);
	return list;
}

/* Notes an open file. Return: 0; -ENOTSUP: not a file of the driver; another -errno */
static int dump(int fd, int id)
{
	char link[40], path[1000];
	const int flags = fcntl(fd, F_GETFL);
	ssize_t length;
	FILE *list;
	int r;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	path[length > 0 ? length : 0] = '\0';
	if (flags < 0 || strncmp(path, CRIU_NVIDIA_FILES, strlen(CRIU_NVIDIA_FILES)))
		return -ENOTSUP;
	list = open_list(O_WRONLY | O_CREAT | O_APPEND, "a");
	if (!list)
		return -errno;
	r = fprintf(list, "%d %d %s\n", id, flags & (O_ACCMODE | O_NONBLOCK), path) < 0 ? -EIO : 0;
	return fclose(list) ? -EIO : r;
}

/* Opens a noted file again. Return: the descriptor, CRIU's; -ENOTSUP: not noted; -errno */
static int restore(int id, bool *ret_again)
{
	FILE *list = open_list(O_RDONLY, "r");
	char path[1000];
	int found, flags, fd = -ENOTSUP;

	*ret_again = false;
	while (list && fd == -ENOTSUP && fscanf(list, "%d %d %999s", &found, &flags, path) == 3)
		if (found == id) {
			fd = open(path, flags);
			fd = fd < 0 ? -errno : fd;
		}
	if (list)
		fclose(list);
	return fd;
}

__attribute__((visibility("default"))) struct plugin CR_PLUGIN_DESC = {
	.name = "frmps: files of NVIDIA's driver",
	.version = VERSION,
	.hook_count = HOOKS,
	.hooks = {[HOOK_DUMP_FILE] = (void *)dump, [HOOK_RESTORE_FILE] = (void *)restore},
};
