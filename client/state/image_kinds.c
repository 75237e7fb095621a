// Removal of members of fat binaries. Runs on the program's threads; only the caller uses the file.
// Its bytes are the program's: every size in the file is checked.

#include "client/state/image_kinds.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>

#include "client/state/file.h"
#include "protocol/fatbin.h"

struct image_kinds image_left_out;

static bool stays(uint16_t kind)
{
	if (kind == FATBIN_KIND_ELF)
		return !image_left_out.code;
	return kind == FATBIN_KIND_TEXT ? !image_left_out.text : !image_left_out.intermediate;
}

static bool read_at(int fd, uint64_t offset, void *to, size_t size)
{
	return pread(fd, to, size, (off_t)offset) == (ssize_t)size;
}

/* Moves bytes towards the beginning of the file. */
static bool move_down(int fd, uint64_t from, uint64_t to, uint64_t bytes)
{
	uint8_t chunk[16384];

	while (bytes > 0 && from != to) {
		size_t n = bytes < sizeof(chunk) ? (size_t)bytes : sizeof(chunk);

		if (!read_at(fd, from, chunk, n) || file_fill(fd, chunk, n, to) != (ssize_t)n)
			return false;
		from += n;
		to += n;
		bytes -= n;
	}
	return true;
}

/* Return: bytes of the member at a place, with its header; 0: the member does not end before
 * `end` */
static uint64_t member_bytes(const struct fatbin_entry *member, uint64_t at, uint64_t end)
{
	uint64_t bytes;

	if (member->header_bytes < sizeof(*member) ||
		__builtin_add_overflow(member->payload_bytes, member->header_bytes, &bytes))
		return 0;
	return bytes <= end - at ? bytes : 0;
}

static CUresult shorten(int fd, struct fatbin_header *header, uint64_t *bytes)
{
	uint64_t at = header->header_bytes, to = at, end = *bytes, size;
	bool text = false, code = false;
	struct fatbin_entry member;

	for (; end - at >= sizeof(member); at += size) {
		if (!read_at(fd, at, &member, sizeof(member)))
			return CUDA_ERROR_OUT_OF_MEMORY;
		size = member_bytes(&member, at, end);
		if (!size)
			return CUDA_ERROR_INVALID_IMAGE;
		if (!stays(member.kind)) {
			text = text || member.kind == FATBIN_KIND_TEXT;
			code = code || member.kind == FATBIN_KIND_ELF;
			continue;
		}
		if (!move_down(fd, at, to, size))
			return CUDA_ERROR_OUT_OF_MEMORY;
		to += size;
	}
	if (to == header->header_bytes && text)
		return CUDA_ERROR_JIT_COMPILATION_DISABLED;
	if (to == header->header_bytes && code)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	header->payload_bytes = to - header->header_bytes;
	*bytes = to;
	return file_fill(fd, header, sizeof(*header), 0) == sizeof(*header) ? CUDA_SUCCESS
									    : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult image_leave_out(int fd, uint64_t *bytes)
{
	struct fatbin_header header = {.magic = 0};

	if (!image_left_out.code && !image_left_out.text && !image_left_out.intermediate)
		return CUDA_SUCCESS;
	if (*bytes >= sizeof(header) && !read_at(fd, 0, &header, sizeof(header)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (header.magic == FATBIN_MAGIC)
		return header.header_bytes >= sizeof(header) && header.header_bytes <= *bytes
			       ? shorten(fd, &header, bytes)
			       : CUDA_ERROR_INVALID_IMAGE;
	if (!memcmp(&header.magic, ELFMAG, SELFMAG) || !image_left_out.text)
		return CUDA_SUCCESS;
	return CUDA_ERROR_JIT_COMPILATION_DISABLED;
}
