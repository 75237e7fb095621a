// Sizes of module images, and their copies for the service. Runs on the program's threads and owns
// nothing.
//
// Invariant: only the kernel reads bytes of the program, for the memfd (file_fill()), and stops
// where memory ends. Measurements read the memfd; the final copy is made last and replaces those
// scratch bytes. If a program changes an image during the call, the copy has whatever was there;
// the service checks it again.

#include "client/state/image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/link/control.h"
#include "client/state/file.h"
#include "client/state/image_kinds.h"
#include "client/state/log.h"
#include "client/state/uncancelled.h"
#include "protocol/fatbin.h"

#define WRAPPER_MAGIC UINT32_C(0x466243b1)

struct wrapper {
	uint32_t magic;
	uint32_t version;
	const void *data;
	const void *extra;
};

/* Bytes to be measured: a program's, read through `scratch`, or with scratch -1 bytes that are
 * known to be readable. */
struct source {
	const uint8_t *at;
	uint64_t available;
	int scratch;
};

/* Attempts to send a file that the service does not know: the service may have restarted, or
 * dropped the file for others. */
#define TRIES 16
/* Largest plausible number of entries in an ELF file's table; the largest cubins have some ten
 * thousand sections. */
#define ELF_ENTRIES_MAX (UINT64_C(1) << 20)

static size_t probe(int scratch, const void *at, void *buffer, size_t size)
{
	ssize_t n = file_fill(scratch, at, size, 0);

	if (n <= 0)
		return 0;
	n = pread(scratch, buffer, (size_t)n, 0);
	return n > 0 ? (size_t)n : 0;
}

/* Reads up to `size` bytes and returns the number of bytes read. */
static size_t source_read(const struct source *source, uint64_t offset, void *buffer, size_t size)
{
	if (offset >= source->available || UINTPTR_MAX - offset < (uintptr_t)source->at)
		return 0;
	if (size > source->available - offset)
		size = (size_t)(source->available - offset);
	if (source->scratch >= 0)
		return probe(source->scratch, source->at + offset, buffer, size);
	memcpy(buffer, source->at + offset, size);
	return size;
}

static bool source_read_all(const struct source *source, uint64_t offset, void *buffer, size_t size)
{
	return source_read(source, offset, buffer, size) == size;
}

/* Raises *end to offset + bytes; false where no image can be that long. */
static bool extend(uint64_t *end, uint64_t offset, uint64_t bytes)
{
	if (offset > IMAGE_BYTES_MAX || bytes > IMAGE_BYTES_MAX - offset)
		return false;
	if (offset + bytes > *end)
		*end = offset + bytes;
	return true;
}

static bool fatbin_bytes(const struct source *source, uint64_t *ret_bytes)
{
	struct fatbin_header header;
	uint64_t end = 0;

	if (!source_read_all(source, 0, &header, sizeof(header)))
		return false;
	if (header.version != 1 || header.header_bytes < sizeof(header))
		return false;
	if (!extend(&end, header.header_bytes, header.payload_bytes))
		return false;
	*ret_bytes = end;
	return true;
}

static bool elf_section_ends(const struct source *source, uint64_t offset, uint64_t count, uint64_t *end)
{
	Elf64_Shdr sections[64];

	while (count > 0) {
		size_t n = count < 64 ? (size_t)count : 64;

		if (!source_read_all(source, offset, sections, n * sizeof(sections[0])))
			return false;
		for (size_t i = 0; i < n; ++i) {
			if (sections[i].sh_type == SHT_NOBITS || sections[i].sh_type == SHT_NULL)
				continue;
			if (!extend(end, sections[i].sh_offset, sections[i].sh_size))
				return false;
		}
		offset += n * sizeof(sections[0]);
		count -= n;
	}
	return true;
}

/* For files with stripped sections. */
static bool elf_segment_ends(const struct source *source, uint64_t offset, uint64_t count, uint64_t *end)
{
	for (uint64_t i = 0; i < count; ++i) {
		Elf64_Phdr segment;

		if (!source_read_all(source, offset + i * sizeof(segment), &segment, sizeof(segment)))
			return false;
		if (!extend(end, segment.p_offset, segment.p_filesz))
			return false;
	}
	return true;
}

/* Numbers too large for the file header stand in the first section. */
static bool elf_counts(
	const struct source *source, const Elf64_Ehdr *header, uint64_t *ret_sections, uint64_t *ret_segments)
{
	Elf64_Shdr first = {.sh_type = SHT_NULL};
	uint64_t sections = header->e_shnum, segments = header->e_phnum;

	if (header->e_shoff != 0 && (sections == 0 || segments == PN_XNUM)) {
		if (!source_read_all(source, header->e_shoff, &first, sizeof(first)))
			return false;
		if (sections == 0)
			sections = first.sh_size;
		if (segments == PN_XNUM)
			segments = first.sh_info;
	}
	if (header->e_shoff == 0)
		sections = 0;
	if (header->e_phoff == 0)
		segments = 0;
	if (sections > ELF_ENTRIES_MAX || segments > ELF_ENTRIES_MAX)
		return false;
	*ret_sections = sections;
	*ret_segments = segments;
	return true;
}

static bool elf_bytes(const struct source *source, uint64_t *ret_bytes)
{
	Elf64_Ehdr header;
	uint64_t sections, segments, end = 0;

	if (!source_read_all(source, 0, &header, sizeof(header)))
		return false;
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
		return false;
	if (!elf_counts(source, &header, &sections, &segments))
		return false;
	if ((sections > 0 && header.e_shentsize != sizeof(Elf64_Shdr)) ||
		(segments > 0 && header.e_phentsize != sizeof(Elf64_Phdr)))
		return false;
	if (!extend(&end, 0, sizeof(header)) ||
		!extend(&end, header.e_shoff, sections * sizeof(Elf64_Shdr)) ||
		!extend(&end, header.e_phoff, segments * sizeof(Elf64_Phdr)))
		return false;
	if (!elf_section_ends(source, header.e_shoff, sections, &end))
		return false;
	if (sections == 0 && !elf_segment_ends(source, header.e_phoff, segments, &end))
		return false;
	*ret_bytes = end;
	return true;
}

static bool is_space(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Text begins, behind white space, with a visible character, and ends with a NUL. */
static bool text_bytes(const struct source *source, uint64_t *ret_bytes)
{
	uint8_t chunk[16384];
	bool begun = false;

	for (uint64_t offset = 0; offset < IMAGE_BYTES_MAX;) {
		size_t n = source_read(source, offset, chunk, sizeof(chunk));
		const uint8_t *nul = memchr(chunk, 0, n);

		for (size_t i = 0; i < n && !begun; ++i) {
			if (is_space(chunk[i]))
				continue;
			if (chunk[i] < 0x21 || chunk[i] > 0x7e)
				return false;
			begun = true;
		}
		if (nul) {
			*ret_bytes = offset + (uint64_t)(nul - chunk) + 1;
			return true;
		}
		if (n == 0)
			return false;
		offset += n;
	}
	return false;
}

static bool is_binary(uint32_t magic)
{
	return magic == FATBIN_MAGIC || magic == WRAPPER_MAGIC || memcmp(&magic, ELFMAG, SELFMAG) == 0;
}

static CUresult measure(const struct source *source, uint64_t *ret_bytes)
{
	uint32_t magic = 0;
	uint64_t bytes = 0;
	bool whole;

	if (source_read(source, 0, &magic, sizeof(magic)) == 0)
		return CUDA_ERROR_INVALID_IMAGE;
	if (magic == FATBIN_MAGIC)
		whole = fatbin_bytes(source, &bytes);
	else if (is_binary(magic))
		whole = magic != WRAPPER_MAGIC && elf_bytes(source, &bytes);
	else
		whole = text_bytes(source, &bytes);
	if (!whole || bytes > source->available)
		return CUDA_ERROR_INVALID_IMAGE;
	*ret_bytes = bytes;
	return CUDA_SUCCESS;
}

CUresult image_measure(const void *at, uint64_t available, uint64_t *ret_bytes)
{
	struct source source = {.at = at, .available = available, .scratch = -1};

	return measure(&source, ret_bytes);
}

/* Replaces a wrapper by its contents. */
static CUresult unwrap(int scratch, const void **code, bool *ret_relocatable)
{
	struct wrapper wrapper;
	uint32_t magic = 0;

	*ret_relocatable = false;
	if (probe(scratch, *code, &magic, sizeof(magic)) != sizeof(magic) || magic != WRAPPER_MAGIC)
		return CUDA_SUCCESS;
	if (probe(scratch, *code, &wrapper, sizeof(wrapper)) != sizeof(wrapper))
		return CUDA_ERROR_INVALID_IMAGE;
	if (wrapper.version != 1 && wrapper.version != 2) {
		client_log(CLIENT_LOG_ERROR, "fatbin wrapper of unknown version %u refused", wrapper.version);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (!wrapper.data)
		return CUDA_ERROR_INVALID_IMAGE;
	*code = wrapper.data;
	*ret_relocatable = wrapper.version == 2;
	return CUDA_SUCCESS;
}

static CUresult write_all(int fd, const void *at, uint64_t bytes)
{
	if (file_fill(fd, at, bytes, 0) == (ssize_t)bytes)
		return CUDA_SUCCESS;
	return errno == EFAULT ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult seal(int fd, uint64_t bytes)
{
	if (ftruncate(fd, (off_t)bytes) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	return CUDA_SUCCESS;
}

/* The whole image is there. */
static CUresult finish(int fd, struct image *image)
{
	CUresult result = image_leave_out(fd, &image->bytes);

	return result != CUDA_SUCCESS ? result : seal(fd, image->bytes);
}

static CUresult fill_from_memory(int fd, const void *code, struct image *image)
{
	struct source source = {.available = IMAGE_BYTES_MAX, .scratch = fd};
	CUresult result;

	result = unwrap(fd, &code, &image->relocatable);
	if (result != CUDA_SUCCESS)
		return result;
	source.at = code;
	result = measure(&source, &image->bytes);
	if (result != CUDA_SUCCESS)
		return result;
	result = write_all(fd, code, image->bytes);
	return result != CUDA_SUCCESS ? result : finish(fd, image);
}

/* Copies a file and a NUL, and returns the length of both. */
static CUresult copy_file(int from, int to, uint64_t *ret_bytes)
{
	uint8_t chunk[16384];
	uint64_t bytes = 0;
	ssize_t n;

	for (;;) {
		n = read(from, chunk, sizeof(chunk));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return CUDA_ERROR_FILE_NOT_FOUND;
		if (n == 0)
			break;
		if (bytes + (uint64_t)n >= IMAGE_BYTES_MAX)
			return CUDA_ERROR_INVALID_IMAGE;
		if (file_fill(to, chunk, (size_t)n, bytes) != n)
			return CUDA_ERROR_OUT_OF_MEMORY;
		bytes += (uint64_t)n;
	}
	if (file_fill(to, "", 1, bytes) != 1)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_bytes = bytes + 1;
	return CUDA_SUCCESS;
}

static CUresult fill_from_file(int fd, const char *path, struct image *image)
{
	uint32_t magic = 0;
	uint64_t bytes;
	CUresult result;
	void *view;
	int file;

	file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (file < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	result = copy_file(file, fd, &bytes);
	close(file);
	if (result != CUDA_SUCCESS)
		return result;
	view = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (view == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(&magic, view, bytes < sizeof(magic) ? bytes : sizeof(magic));
	/* The NUL is not part of the file's contents. */
	result = image_measure(view, is_binary(magic) ? bytes - 1 : bytes, &image->bytes);
	munmap(view, bytes);
	return result != CUDA_SUCCESS ? result : finish(fd, image);
}

static CUresult open_from(const void *code, const char *path, struct image *ret_image)
{
	struct image image = {.fd = -1};
	int saved = errno;
	CUresult result;

	result = control_make_file(&image.fd, &image.file);
	if (result != CUDA_SUCCESS)
		return result;
	result = path ? fill_from_file(image.fd, path, &image) : fill_from_memory(image.fd, code, &image);
	if (result == CUDA_SUCCESS)
		*ret_image = image;
	else
		image_close(&image);
	errno = saved;
	return result;
}

CUresult image_open(const void *code, struct image *ret_image)
{
	return code ? open_from(code, NULL, ret_image) : CUDA_ERROR_INVALID_VALUE;
}

CUresult image_open_file(const char *path, struct image *ret_image)
{
	return path ? open_from(NULL, path, ret_image) : CUDA_ERROR_INVALID_VALUE;
}

CUresult image_copy(const void *at, uint64_t bytes, bool relocatable, struct image *ret_image)
{
	struct image image = {.fd = -1, .bytes = bytes, .relocatable = relocatable};
	int saved = errno;
	CUresult result;

	result = control_make_file(&image.fd, &image.file);
	if (result != CUDA_SUCCESS)
		return result;
	result = write_all(image.fd, at, bytes);
	if (result == CUDA_SUCCESS)
		result = seal(image.fd, bytes);
	if (result == CUDA_SUCCESS)
		*ret_image = image;
	else
		image_close(&image);
	errno = saved;
	return result;
}

/* The same bytes in another file. */
static CUresult move(struct image *image)
{
	void *view = mmap(NULL, image->bytes, PROT_READ, MAP_PRIVATE, image->fd, 0);
	struct image next;
	CUresult result;

	if (view == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = image_copy(view, image->bytes, image->relocatable, &next);
	munmap(view, image->bytes);
	if (result != CUDA_SUCCESS)
		return result;
	image_close(image);
	*image = next;
	return CUDA_SUCCESS;
}

CUresult image_send(
	struct image *image, struct wire_message *request, uint64_t *file, struct control_answer *answer)
{
	CUresult result;

	for (int i = 0;; i++) {
		*file = image->file;
		result = control_call(request, answer);
		if (result != CUDA_ERROR_ILLEGAL_STATE)
			return result;
		if (i == TRIES)
			return CUDA_ERROR_OUT_OF_MEMORY;
		result = move(image);
		if (result != CUDA_SUCCESS)
			return result;
	}
}

void image_close(struct image *image)
{
	if (image->fd >= 0)
		uncancelled_close(image->fd);
	image->fd = -1;
}
