// Fat binaries: several forms of the same code, each for a device or as text for the compiler,
// perhaps compressed. A header, followed by members with a header each. Their machine code can be
// extracted, replaced and put back. Pure functions; any thread.

#ifndef FRMPS_SERVER_BACKEND_FATBIN_H
#define FRMPS_SERVER_BACKEND_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/fatbin.h"

#define FATBIN_FLAG_LZ4	 UINT64_C(0x2000)
#define FATBIN_FLAG_ZSTD UINT64_C(0x8000)
/* Members for a single device. The driver loads one of them; compilers write a few. Each costs some
 * work, however small. */
#define FATBIN_MEMBERS_MAX 1024u
/* Of an image of so many bytes: the claimed unpacked sizes of members for a device stay below this
 * in all, or nothing more is unpacked. Compilers pack code to a tenth, zeros to nearly nothing. A
 * file without pages may cost its program nothing: so there is a bound in any case, and an image
 * with a member beyond the bound is refused, for the driver unpacks as well. */
#define FATBIN_UNPACKED_MOST (UINT64_C(1) << 30)
#define FATBIN_UNPACKED_MAX(bytes)                                                                           \
	((bytes) < (FATBIN_UNPACKED_MOST - (UINT64_C(256) << 20)) / 64                                       \
			? (UINT64_C(256) << 20) + 64 * (bytes)                                               \
			: FATBIN_UNPACKED_MOST)
/* And by which the contents that replace others may be longer than those, all together. */
#define FATBIN_GROWTH_MAX(bytes) ((UINT64_C(16) << 20) + (bytes))

/* Bytes on the heap, owned by the holder of this struct. */
struct fatbin_bytes {
	uint8_t *at;
	size_t count;
};

/**
 * Looks at a cubin.
 * @ret: left unchanged if the cubin is not to change, else its replacement
 */
typedef CUresult fatbin_visit(void *context, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret);

/**
 * Shows the machine code for a device that is in a fat binary.
 * @image: has passed image_check()
 * @arch: 10 * major + minor
 * @ret: left unchanged if nothing is replaced, else a fat binary with the replacement
 * Return: CUDA_SUCCESS; CUDA_ERROR_INVALID_IMAGE: a member cannot be unpacked, would become too
 * large, or there are too many; CUDA_ERROR_OUT_OF_MEMORY; or the result of a visit
 */
CUresult fatbin_rewrite(
	const uint8_t *image, unsigned arch, fatbin_visit *visit, void *context, struct fatbin_bytes *ret);

/**
 * The machine code for a device: for exactly this device, else the latest. Otherwise as
 * fatbin_text()
 */
CUresult fatbin_code(const uint8_t *image, unsigned arch, struct fatbin_bytes *ret);

/**
 * The text for a device: the latest text that can be compiled for this device.
 * @image: has passed image_check()
 * @ret: a copy
 * Return: CUDA_SUCCESS, CUDA_ERROR_NO_BINARY_FOR_GPU (there is none), CUDA_ERROR_INVALID_IMAGE
 * (unpacking failed), CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult fatbin_text(const uint8_t *image, unsigned arch, struct fatbin_bytes *ret);

#endif
