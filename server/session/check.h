// Checks of a program's request before the daemon acts on the request. Pure over the session's
// window and holdings; the only system calls ask about the file that the request names, and read
// the begin of an image.

#ifndef FRMPS_SERVER_SESSION_CHECK_H
#define FRMPS_SERVER_SESSION_CHECK_H

#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

struct holdings;

#define CHECK_PAGE	UINT64_C(4096)
#define CHECK_NAME_MAX	16384u /* mangled names get long */
#define CHECK_IMAGE_MAX (UINT64_C(4) << 30)
/* an input of the device linker, or a module's text */
#define CHECK_LINK_BYTES   (UINT64_C(256) << 20)
#define CHECK_LINK_INPUTS  1024u
#define CHECK_OPTIONS_MAX  64u
#define CHECK_WINDOWS_MAX  1024u	       /* further windows of one session */
#define CHECK_OPTION_BYTES (UINT64_C(1) << 20) /* most bytes of a log that an option asks for */

/* Outcomes. */
/* only a broken or hostile program sends this: disconnect; `reason` says why */
#define CHECK_E_BROKEN 1
#define CHECK_E_ANSWER 2 /* answer with `code`, nothing is done */

/* The state and limits of the session that a request is checked against. */
struct check_scope {
	uint64_t window_base, device_bytes, host_bytes;
	uint64_t memory_limit, pinned_limit, image_limit; /* bytes; 0: none */
	/* of pinned memory that was freed, but is open in programs of this user */
	uint64_t kept_bytes;
	const struct holdings *holdings;
};

struct check_finding {
	const char *reason; /* static */
	CUresult code;
	const char *limit; /* setting of the configuration that caused the answer; NULL: none */
	uint64_t bytes;	   /* requested beyond the limit */
};

/**
 * Checks a request.
 * @message: a message that a program may send (message_allowed())
 * @file: named by the request (upload.h), -1: none; stays the caller's
 * Return: 0 or CHECK_E_*
 */
int check_request(const struct check_scope *scope, const struct wire_message *message, int file,
	struct check_finding *ret_finding);

#endif
