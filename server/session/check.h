// Checks of a program's request before anything is done with it. Pure over the session's window and
// holdings; the only system calls are questions about the file that it names, and a look at how an
// image begins.

#ifndef FRMPS_SERVER_SESSION_CHECK_H
#define FRMPS_SERVER_SESSION_CHECK_H

#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

struct holdings;

#define CHECK_PAGE	   UINT64_C(4096)
#define CHECK_NAME_MAX	   16384u /* mangled names get long */
#define CHECK_IMAGE_MAX	   (UINT64_C(4) << 30)
#define CHECK_LINK_BYTES   (UINT64_C(256) << 20) /* one input of the device linker, or a module's text */
#define CHECK_LINK_INPUTS  1024u
#define CHECK_OPTIONS_MAX  64u
#define CHECK_WINDOWS_MAX  1024u	       /* further windows of one session */
#define CHECK_OPTION_BYTES (UINT64_C(1) << 20) /* most bytes of a log that an option asks for */

/* Outcomes. */
#define CHECK_E_BROKEN 1 /* only a broken or hostile program sends this: cut it off; `reason` says why */
#define CHECK_E_ANSWER 2 /* answer with `code`, nothing is done */

/* What a request is checked against. */
struct check_scope {
	uint64_t window_base, device_bytes, host_bytes;
	uint64_t memory_limit, pinned_limit, image_limit; /* bytes; 0: none */
	uint64_t kept_bytes; /* of pinned memory that was freed, and its user's programs keep open */
	const struct holdings *holdings;
};

struct check_finding {
	const char *reason; /* static */
	CUresult code;
	const char *limit; /* of the configuration, that is the reason of the answer; NULL: none is */
	uint64_t bytes;	   /* that were asked for beyond it */
};

/**
 * Checks a request.
 * @message: a message that a program may send (message_allowed())
 * @file: that it names (upload.h), -1: none; stays the caller's
 * Return: 0 or CHECK_E_*
 */
int check_request(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *ret_finding);

#endif
