// Common parts of the checks of programs' requests: the scope, the finding, ranges, limits, options
// and files. Pure over the session's window and holdings; the only system calls ask about the file
// that the request names, and read the begin of an image.

#ifndef FRMPS_SERVER_RESOURCE_CHECK_H
#define FRMPS_SERVER_RESOURCE_CHECK_H

#include <stdbool.h>
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
#define CHECK_OPTION_BYTES (UINT64_C(1) << 20) /* most bytes of a log that an option asks for */

/* Outcomes. */
/* only a broken or hostile program sends this: disconnect; `reason` says why */
#define CHECK_E_BROKEN 1
#define CHECK_E_ANSWER 2 /* answer with `code`, nothing is done */

/* All zero: nothing was found. */
struct check_finding {
	const char *reason; /* static */
	CUresult code;
	const char *limit; /* setting of the configuration that caused the answer; NULL: none */
	uint64_t bytes;	   /* requested beyond the limit */
};

/* The state and limits of the session that a request is checked against, and what comes of it. */
struct check {
	uint64_t window_base, device_bytes, host_bytes;
	uint64_t memory_limit, pinned_limit, image_limit; /* bytes; 0: none */
	/* of pinned memory that was freed, but is open in programs of this user */
	uint64_t kept_bytes;
	const struct holdings *holdings;
	int file; /* named by the request (upload.h), the caller's; -1: none */
	struct check_finding finding;
};

/* Each fills in the finding and returns its outcome, so that checks stay flat. */
int check_broken(struct check *check, const char *reason);
int check_answer(struct check *check, CUresult code);
/** A limit of the configuration is in the way. */
int check_over(struct check *check, const char *limit, uint64_t bytes);

/** True if `more` would exceed the limit. @limit: 0: none */
bool check_is_over(uint64_t limit, uint64_t held, uint64_t more);
int check_memory_limit(struct check *check, uint64_t bytes);
int check_pinned_limit(struct check *check, uint64_t bytes);

/** True if the range lies inside so many bytes from the base on. */
bool check_inside(const struct wire_range *range, uint64_t base, uint64_t bytes);
/** True for a range inside the device or the host part of the session's window. */
bool check_inside_part(struct check *check, const struct wire_range *range, bool device);
/** True for a range inside a further window of the session, for device or for host memory. */
bool check_inside_windows(struct check *check, const struct wire_range *range, bool device);
/** A range that is to be mapped, of device memory or of host memory. */
int check_map(struct check *check, const struct wire_range *range, bool device);
/** A range that is to be unmapped. */
int check_unmap(struct check *check, const struct wire_range *range, bool device);

int check_options(struct check *check, const struct wire_options *options);
/** The file is an image. It must not change while the executor reads: the file is sealed against
 * all changes. No check here waits for a program that writes to the file without end. */
int check_image(struct check *check, uint64_t bytes);

#endif
