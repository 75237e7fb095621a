// The frame of a fat binary, as nvcc writes it: a header and, behind it, members with a header
// each. The client library measures images with these headers; the service takes images apart
// (server/backend/fatbin.h).

#ifndef FRMPS_PROTOCOL_FATBIN_H
#define FRMPS_PROTOCOL_FATBIN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define FATBIN_MAGIC UINT32_C(0xba55ed50)

struct fatbin_header {
	uint32_t magic;
	uint16_t version;
	uint16_t header_bytes;
	uint64_t payload_bytes;
};

struct fatbin_entry {
	uint16_t kind;
	uint16_t version;
	uint32_t header_bytes;
	uint64_t payload_bytes;
};
#define FATBIN_KIND_TEXT 1
#define FATBIN_KIND_ELF	 2

/* Behind a struct fatbin_entry, in the entry's header. */
struct fatbin_target {
	uint32_t packed_bytes; /* bytes of compressed contents; the payload is padded */
	uint32_t unused[2];
	uint32_t arch; /* 10 * major + minor */
	uint32_t unused_too[2];
	uint64_t flags;
	uint64_t unused_as_well;
	uint64_t unpacked_bytes;
};
#define FATBIN_FLAGS_PLAIN UINT64_C(0xffff) /* above: for a single device or family only */

/** True if a member's code runs on a device. @at: its header, completely inside the image */
static inline bool fatbin_is_for(const uint8_t *at, unsigned arch)
{
	struct fatbin_entry entry;
	struct fatbin_target target;

	memcpy(&entry, at, sizeof(entry));
	if (entry.kind != FATBIN_KIND_ELF || entry.header_bytes < sizeof(entry) + sizeof(target))
		return false;
	memcpy(&target, at + sizeof(entry), sizeof(target));
	return target.arch == arch ||
	       (target.arch / 10 == arch / 10 && target.arch < arch && !(target.flags & ~FATBIN_FLAGS_PLAIN));
}

#endif
