// The links of the program that this process serves: each link's inputs so far. A cache: room for
// LINKS_MOST links, and for as much memory as this process gets; the least recently used link is
// dropped. The program has its inputs, and begins again at an error about a missing link
// (CUDA_ERROR_ILLEGAL_STATE). One thread.

#ifndef FRMPS_SERVER_COMPILER_LINKS_H
#define FRMPS_SERVER_COMPILER_LINKS_H

#include <stdint.h>
#include <sys/queue.h>

#include "protocol/wire.h"
#include "server/backend/backend.h"

#define LINKS_MOST 32u
/* Largest image that is handed out, bytes. */
#define LINKS_IMAGE_MAX (UINT64_C(1) << 30)

struct link;

struct links {
	const struct backend_ops *ops;
	TAILQ_HEAD(, link) list; /* least recently used first */
	uint32_t count;
};

void links_init(struct links *links, const struct backend_ops *ops);

/**
 * Executes LinkAdd, LinkComplete or LinkDrop.
 * @fd: with the input, or for the image; -1: none. The descriptor stays the caller's
 * @ret_bytes: of the image; left alone where there is none
 * @ret_errors, @ret_remarks: the link's logs, valid until the next call; left alone without a link
 */
CUresult links_handle(struct links *links, const struct wire_message *request, int fd, uint64_t *ret_bytes,
	const char **ret_errors, const char **ret_remarks);

#endif
