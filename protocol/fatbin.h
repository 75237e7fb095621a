// The frame of a fat binary, as nvcc writes it: a header and, behind it, members with a header
// each. The client library measures images with these headers; the service takes images apart
// (server/backend/fatbin.h).

#ifndef FRMPS_PROTOCOL_FATBIN_H
#define FRMPS_PROTOCOL_FATBIN_H

#include <stdint.h>

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

#endif
