// What lies at addresses of the program, and the exchange of its private pages for shared ones with
// the same contents, and back, while its threads may write there. Any thread.
//
// Where the kernel hands this process all faults of its pages (userfaultfd: root, a program with
// CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd), who writes to a page under way waits in the
// kernel until the new page is there, system calls included. Otherwise only the program's own
// instructions wait, and a system call that writes there fails with EFAULT. Where a process has no
// userfaultfd at all, the thread that writes is killed by SIGSEGV. So a write is never lost; but
// pages that also hold what the caller was not asked about are exchanged in the first case only.
//
// Not seen by any of this: what the kernel or another device writes to pages that it pinned before
// (O_DIRECT, io_uring, RDMA).
//
// A forked child gets private pages with what the shared ones hold at that moment, as it gets them
// of memory that a driver has pinned: the child makes the copy, and its parent waits for it.

#ifndef FRMPS_CLIENT_STATE_PAGES_H
#define FRMPS_CLIENT_STATE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

#define PAGES_BYTES UINT64_C(4096)

struct pages_nature {
	bool readable;	/* all of it */
	bool writable;	/* all of it */
	bool anonymous; /* and is nobody else's: private, without a file, readable and writable */
};

/** CUDA_ERROR_OUT_OF_MEMORY: no memory, or no /proc. */
CUresult pages_look(uint64_t address, uint64_t bytes, struct pages_nature *ret_nature);

/**
 * Whole pages: puts shared pages in the place of anonymous ones, with their contents.
 * @behind: where the shared ones are mapped, and stay so
 * @beside: they hold what is not to be exchanged, too
 * Return: CUDA_ERROR_NOT_SUPPORTED: not without losing writes; CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult pages_share(uint64_t address, uint64_t behind, uint64_t bytes, bool beside);

/** The reverse, wherever the program has these pages by now: it may have unmapped or moved
 * them, and have something else at the addresses. On failure they stay shared.
 * CUDA_ERROR_OUT_OF_MEMORY */
CUresult pages_make_private(uint64_t behind);

/** Around a fork, with all signals blocked: no pages are exchanged meanwhile. pages_forked() is the
 * parent's end of it, pages_in_child() the child's. */
void pages_fork(void);
void pages_forked(void);
void pages_in_child(void);

#endif
