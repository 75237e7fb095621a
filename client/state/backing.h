// The file in memory behind shared pages: tmpfs, a memfd, shared memory without a name, which is a
// file of the kernel's. Any thread.

#ifndef FRMPS_CLIENT_STATE_BACKING_H
#define FRMPS_CLIENT_STATE_BACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct backing {
	int fd;			/* open for reading and writing */
	bool is_opened;		/* here; else the program's own descriptor, which it may close at any time */
	uint64_t offset;	/* of the first byte in the file */
	uint64_t device, inode; /* as of stat(2) */
};

/**
 * Finds the file of which these pages are a shared mapping.
 * @address, @bytes: whole pages
 * Return: CUDA_ERROR_NOT_SUPPORTED: they are not all of one such file, in its order, or this
 * process cannot open it: the file has neither descriptor nor name any more, and this process may
 * not open what its memory map names (CAP_CHECKPOINT_RESTORE). CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult backing_find(uint64_t address, uint64_t bytes, struct backing *ret_backing);
void backing_end(const struct backing *backing);

/** True if pages at `other` are those at `address`, of the same place of the same file. */
bool backing_is_same(uint64_t address, uint64_t other);

#endif
