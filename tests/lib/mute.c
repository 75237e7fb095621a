// The program of the file system. See mute.h. It is a process of its own, which ends with the
// test's process group: who waits for it could not be killed otherwise. The mount is in a name
// space of its own, and goes with that.

#include "tests/lib/mute.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_NODE 2

static char folder[] = "/tmp/frmps-mute-XXXXXX";
static int device = -1;
static pid_t program;
static atomic_bool *is_mute;	   /* shared with it */
static atomic_bool *is_waited_for; /* the same: a request is left without an answer */

static void answer(const struct fuse_in_header *in, int error, const void *body, size_t bytes)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + bytes), .error = -error, .unique = in->unique};
	struct iovec parts[] = {{&out, sizeof(out)}, {(void *)(uintptr_t)body, bytes}};

	if (writev(device, parts, bytes ? 2 : 1) < 0)
		return;
}

static const char page[4096];

static struct fuse_attr attributes(uint64_t node)
{
	return (struct fuse_attr){.ino = node,
		.mode = node == FILE_NODE ? S_IFREG | 0644 : S_IFDIR | 0755,
		.nlink = 1,
		.size = node == FILE_NODE ? sizeof(page) : 0};
}

static void serve(const struct fuse_in_header *in)
{
	const struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
	const struct fuse_entry_out entry = {.nodeid = FILE_NODE, .attr = attributes(FILE_NODE)};
	const struct fuse_attr_out attr = {.attr = attributes(in->nodeid)};
	const struct fuse_open_out open = {.fh = 1};

	if (in->opcode == FUSE_INIT)
		answer(in, 0, &init, sizeof(init));
	else if (in->opcode == FUSE_LOOKUP)
		answer(in, 0, &entry, sizeof(entry));
	else if (in->opcode == FUSE_GETATTR)
		answer(in, 0, &attr, sizeof(attr));
	else if (in->opcode == FUSE_OPEN)
		answer(in, 0, &open, sizeof(open));
	else if ((in->opcode == FUSE_FLUSH || in->opcode == FUSE_READ) && *is_mute)
		*is_waited_for = true;
	else if (in->opcode == FUSE_RELEASE || in->opcode == FUSE_FLUSH)
		answer(in, 0, NULL, 0);
	else if (in->opcode == FUSE_READ)
		answer(in, 0, page, sizeof(page));
	else if (in->opcode != FUSE_FORGET && in->opcode != FUSE_INTERRUPT)
		answer(in, ENOSYS, NULL, 0);
}

static _Noreturn void run(void)
{
	static union {
		struct fuse_in_header header;
		char bytes[FUSE_MIN_READ_BUFFER];
	} request;

	while (read(device, &request, sizeof(request)) > 0 || errno == EINTR)
		serve(&request.header);
	_exit(0);
}

int mute_open(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/file", folder);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static bool mount_it(void)
{
	char options[64];

	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", device, getuid(),
		getgid());
	return device >= 0 && unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mkdtemp(folder) &&
	       mount("mute", folder, "fuse", MS_NODEV | MS_NOSUID, options) == 0;
}

bool mute_new(void)
{
	bool is_mounted;

	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	is_mute = mmap(NULL, 2 * sizeof(*is_mute), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	is_waited_for = is_mute + 1;
	is_mounted = mount_it();
	if (is_mounted && (program = fork()) == 0)
		run();
	close(device);
	return is_mounted;
}

void mute_begin(void)
{
	*is_mute = true;
}

void mute_stop(void)
{
	*is_mute = false;
}

void mute_await(void)
{
	while (!*is_waited_for)
		sched_yield();
}

void mute_end(void)
{
	kill(program, SIGKILL);
	waitpid(program, NULL, 0);
	umount2(folder, MNT_DETACH);
	rmdir(folder);
}
