// Fat binaries: several forms of the same code, one a device or text for the compiler, each perhaps
// compressed. A header and, behind it, members with a header each. Their machine code can be taken
// out, replaced and put back. Pure functions; any thread.

#ifndef FRMPS_SERVER_BACKEND_FATBIN_H
#define FRMPS_SERVER_BACKEND_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/fatbin.h"

#define FATBIN_FLAGS_PLAIN UINT64_C(0xffff) /* above: for one device or family only */
#define FATBIN_FLAG_LZ4	   UINT64_C(0x2000)
#define FATBIN_FLAG_ZSTD   UINT64_C(0x8000)
/* Members for one device. The driver loads one of them: compilers write a few. Each costs some
 * work, however small it is. */
#define FATBIN_MEMBERS_MAX 1024u
/* Of an image of so many bytes: what the members for one device claim to unpack to stays below
 * this, or nothing more is unpacked. Compilers pack code to a tenth, zeros to nearly nothing. The
 * file may cost its program nothing, if it has no pages: so there is a bound whatever it is, and an
 * image with a member beyond that is refused, for the driver unpacks as well. */
#define FATBIN_UNPACKED_MOST (UINT64_C(1) << 30)
#define FATBIN_UNPACKED_MAX(bytes)                                                                           \
	((bytes) < (FATBIN_UNPACKED_MOST - (UINT64_C(256) << 20)) / 64                                       \
			? (UINT64_C(256) << 20) + 64 * (bytes)                                               \
			: FATBIN_UNPACKED_MOST)
/* And by which the contents that replace others may be longer than those, all together. */
#define FATBIN_GROWTH_MAX(bytes) ((UINT64_C(16) << 20) + (bytes))

/** Whether a member's code runs on a device. @at: its header, of which all lies inside the image */
bool fatbin_is_for(const uint8_t *at, unsigned arch);

/* Bytes on the heap that belong to whoever holds this. */
struct fatbin_bytes {
	uint8_t *at;
	size_t count;
};

/**
 * Looks at a cubin.
 * @ret: left alone if the cubin is to stay as it is, else what replaces it
 */
typedef CUresult fatbin_visit(void *context, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret);

/**
 * Shows the machine code for a device that is in a fat binary.
 * @image: has passed image_check()
 * @arch: 10 * major + minor
 * @ret: left alone if nothing is replaced, else a fat binary in which it is
 * Return: CUDA_SUCCESS; CUDA_ERROR_INVALID_IMAGE: something cannot be unpacked, would become too
 * large, or there are too many; CUDA_ERROR_OUT_OF_MEMORY; or what a visit returned
 */
CUresult fatbin_rewrite(
	const uint8_t *image, unsigned arch, fatbin_visit *visit, void *context, struct fatbin_bytes *ret);

/**
 * The machine code for a device: that for this very one, else the latest.
 * Otherwise as fatbin_text()
 */
CUresult fatbin_code(const uint8_t *image, unsigned arch, struct fatbin_bytes *ret);

/**
 * The text for a device: of those that can be compiled for it the latest.
 * @image: has passed image_check()
 * @ret: a copy
 * Return: CUDA_SUCCESS, CUDA_ERROR_NO_BINARY_FOR_GPU (there is none), CUDA_ERROR_INVALID_IMAGE (it
 * cannot be unpacked), CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult fatbin_text(const uint8_t *image, unsigned arch, struct fatbin_bytes *ret);

#endif
