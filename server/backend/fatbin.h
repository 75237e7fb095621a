// Fat binaries: several forms of the same code, each for a device or as text for the compiler,
// perhaps compressed. A header, followed by members with a header each. Their machine code can be
// extracted, replaced and put back. Pure functions; any thread.

#ifndef FRMPS_SERVER_BACKEND_FATBIN_H
#define FRMPS_SERVER_BACKEND_FATBIN_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/fatbin.h"

#define FATBIN_FLAG_LZ4	 UINT64_C(0x2000)
#define FATBIN_FLAG_ZSTD UINT64_C(0x8000)
/* Members for a single device. The driver loads one of them; compilers write a few. Each costs some
 * work, however small. */
#define FATBIN_MEMBERS_MAX 1024u
/* Of one member, bytes. */
#define FATBIN_UNPACKED_MOST (UINT64_C(1) << 30)
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
 * The bytes that all compressed machine code for a device claims to unpack to, however much of that
 * is zeros. The size of the file says nothing: a file without pages costs its program nothing.
 * @image: has passed image_check()
 */
uint64_t fatbin_unpacks_to(const uint8_t *image, unsigned arch);

/**
 * Shows the machine code for a device that is in a fat binary.
 * @image: has passed image_check()
 * @arch: 10 * major + minor
 * @room: bytes that may be unpacked; nothing is, if it would be more
 * @ret: left unchanged if nothing is replaced, else a fat binary with the replacement
 * Return: CUDA_SUCCESS; CUDA_ERROR_INVALID_IMAGE: a member cannot be unpacked, would become too
 * large, or there are too many; CUDA_ERROR_OUT_OF_MEMORY, also without room; or the result of a
 * visit
 */
CUresult fatbin_rewrite(const uint8_t *image, unsigned arch, uint64_t room, fatbin_visit *visit,
	void *context, struct fatbin_bytes *ret);

/**
 * The machine code for a device: for exactly this device, else the latest. Otherwise as
 * fatbin_text()
 */
CUresult fatbin_code(const uint8_t *image, unsigned arch, uint64_t room, struct fatbin_bytes *ret);

/**
 * The text for a device: the latest text that can be compiled for this device.
 * @image: has passed image_check()
 * @room: bytes that it may unpack to
 * @ret: a copy
 * Return: CUDA_SUCCESS, CUDA_ERROR_NO_BINARY_FOR_GPU (there is none), CUDA_ERROR_INVALID_IMAGE
 * (unpacking failed), CUDA_ERROR_OUT_OF_MEMORY, also without room
 */
CUresult fatbin_text(const uint8_t *image, unsigned arch, uint64_t room, struct fatbin_bytes *ret);

#endif
