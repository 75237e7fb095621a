// The memory of suspended sessions: files in host memory, and in a folder when the budget of host
// memory is used up (swap_host_bytes, swap_directory). Files of a folder have no name: the kernel
// frees their room when nobody has them open any more.

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/loop/shared_fd.h"
#include "server/session/daemon.h"
#include "server/session/session.h"
#include "server/standby/swap_inside.h"

/*
 * The budget
 */

uint64_t swap_most_bytes(const struct daemon *daemon)
{
	uint64_t bytes = daemon->config->swap_host_bytes;

	if (bytes)
		return bytes;
	bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
	return bytes / daemon_devices(daemon);
}

void swap_add_bytes(const struct session *session, struct swap_bytes *bytes)
{
	struct stat status;

	/* All files have the same size. */
	if (!session->swap_files[0] || fstat(session->swap_files[0]->fd, &status) < 0)
		return;
	/* Only files in memory have seals. */
	if (fcntl(session->swap_files[0]->fd, F_GET_SEALS) >= 0)
		bytes->host += (uint64_t)status.st_size;
	else
		bytes->directory += (uint64_t)status.st_size;
}

struct swap_bytes swap_all_bytes(const struct daemon *daemon)
{
	const struct session *session;
	struct swap_bytes bytes = {0};

	TAILQ_FOREACH (session, &daemon->sessions, link)
		swap_add_bytes(session, &bytes);
	return bytes;
}

static uint64_t host_room(const struct daemon *daemon)
{
	uint64_t most = swap_most_bytes(daemon), has = swap_all_bytes(daemon).host;

	return most > has ? most - has : 0;
}

uint64_t swap_room(const struct daemon *daemon)
{
	return *daemon->config->swap_directory ? UINT64_MAX : host_room(daemon);
}

/*
 * The files
 */

/* Makes a file system in memory of huge pages, which nobody else sees, and which ends with its last
 * file. The kernel gives huge pages to memfds only if the administrator has enabled that for the
 * whole machine. Return: negative: the service may not make a file system, or the kernel has
 * none */
static int make_folder(void)
{
	int context = fsopen("tmpfs", FSOPEN_CLOEXEC), fd = -1;

	if (context < 0)
		return -1;
	/* The budget is the service's. */
	if (!fsconfig(context, FSCONFIG_SET_STRING, "size", "0", 0) &&
		!fsconfig(context, FSCONFIG_SET_STRING, "huge", "within_size", 0) &&
		!fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		fd = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID);
	close(context);
	return fd;
}

/* @directory: NULL: in host memory; @folder: of huge pages there, or negative. Return: negative:
 * there is none, see errno */
static int open_file(const char *directory, int folder)
{
	int fd;

	if (!directory && folder >= 0)
		return openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (!directory)
		return memfd_create("frmps-swap", MFD_CLOEXEC);
	fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
	/* Not every file system has direct I/O. */
	return fd < 0 && errno == EINVAL ? open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : fd;
}

/* Return: NULL on failure, see errno */
static struct shared_fd *make_file(
	const struct session *session, const char *directory, int folder, uint64_t bytes)
{
	int fd = open_file(directory, folder), error;
	struct shared_fd *file;

	if (fd >= 0 && (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)bytes) < 0)) {
		error = errno;
		close(fd);
		errno = error;
		return NULL;
	}
	file = shared_fd_new(fd);
	if (file && shared_fd_deposit(file, session->daemon->store))
		file = shared_fd_unref(file);
	return file;
}

const char *swap_make_files(struct session *session, uint64_t bytes)
{
	const char *directory = session->daemon->config->swap_directory;
	unsigned made = 0;
	int folder;

	if (bytes <= host_room(session->daemon))
		directory = NULL;
	else if (!*directory)
		return "there would be more device memory in host memory than swap_host_bytes allows";
	folder = directory ? -1 : make_folder();
	while (made < KEPT_SWAP_FILES &&
		(session->swap_files[made] = make_file(session, directory, folder, bytes)))
		made++;
	if (folder >= 0)
		close(folder);
	if (made == KEPT_SWAP_FILES)
		return NULL;
	if (directory)
		log_warning("no file can be made in %s (swap_directory): %s", directory, strerror(errno));
	while (made--)
		session->swap_files[made] = shared_fd_unref(session->swap_files[made]);
	return directory ? "no file for it can be made in swap_directory (the log says why)"
			 : "the service has no memory or no file descriptors left";
}
