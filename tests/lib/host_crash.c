// A module for the host backend that crashes whoever loads it. Where FRMPS_TEST_CRASH_MARK names a
// file, the first one to load it makes that and lives.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/host/kernel.h"

static __attribute__((constructor)) void crash(void)
{
	const char *mark = getenv("FRMPS_TEST_CRASH_MARK");
	int fd = mark ? open(mark, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		raise(SIGSEGV);
	close(fd);
}

static void nothing(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	(void)params;
}

HOST_KERNELS(HOST_KERNEL_PLAIN(nothing));
