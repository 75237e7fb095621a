// Properties of the program's pages, and the exchange of its private pages for shared pages with
// the same contents, and back, while its threads may write there. Any thread.
//
// If this process gets all faults of its pages from the kernel (userfaultfd: root, a program with
// CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd), writers to a page wait in the kernel until the
// new page is there, system calls included. Otherwise only the program's own instructions wait, and
// a system call that writes there fails with EFAULT. In a process without userfaultfd a writer is
// killed by SIGSEGV. So a write is never lost; but pages that also hold other data than the
// caller's are exchanged in the first case only.
//
// No exchange notices writes of the kernel or another device to pages that were pinned before
// (O_DIRECT, io_uring, RDMA).
//
// A forked child gets private pages with the contents of the shared pages at that moment, as with
// memory that a driver has pinned: the child makes the copy, and its parent waits for that.

#ifndef FRMPS_CLIENT_STATE_PAGES_H
#define FRMPS_CLIENT_STATE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

#define PAGES_BYTES UINT64_C(4096)

struct pages_nature {
	bool readable;	/* all of the bytes */
	bool writable;	/* all of the bytes */
	bool anonymous; /* private, without a file, readable and writable */
	bool shared;	/* with others, readable and writable */
};

/** Without /proc, or the memory to read it, pages are neither anonymous nor shared. */
void pages_look(uint64_t address, uint64_t bytes, struct pages_nature *ret_nature);

/**
 * Whole pages: replaces anonymous pages by shared pages, with their contents.
 * @behind: where the shared pages are mapped, and stay mapped
 * @beside: the pages also hold data that is not the caller's
 * Return: CUDA_ERROR_NOT_SUPPORTED: writes could be lost; CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult pages_share(uint64_t address, uint64_t behind, uint64_t bytes, bool beside);

/**
 * Undoes pages_share(), wherever the program has these pages by now: it may have unmapped or moved
 * the pages, and mapped something else at the addresses. After a failure the pages stay shared.
 * CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult pages_make_private(uint64_t behind);

/**
 * Around a fork, with all signals blocked: no pages are exchanged meanwhile. pages_forked() ends
 * this in the parent, pages_in_child() in the child.
 */
void pages_fork(void);
void pages_forked(void);
void pages_in_child(void);

#endif
