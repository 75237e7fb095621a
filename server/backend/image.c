// Does an image stay inside its own bytes? The driver takes images without a length and believes
// the sizes in them, so an image with a false size would make the whole executor read past its end.
// Only the outer structure is checked, which contains the places of all other parts; the contents
// are the driver's business.
//
// Is there code for this device? Machine code is exact about the device, but for plain code of the
// same major version with a lower minor version.
//
// Pure functions on untrusted bytes; any thread.

#include "server/backend/image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/fatbin.h"

/* Contains a pointer of the client's address space; the client sends the pointer's target. */
#define WRAPPER_MAGIC UINT32_C(0x466243b1)

#define MACHINE_CUDA 190
/* The place of the architecture in an ELF file, by the version of its ABI. */
#define ABI_NEW		8
#define ARCH_NEW(flags) ((flags) >> 8 & 0xff)
#define ARCH_OLD(flags) ((flags)&0xff)

static bool inside(uint64_t offset, uint64_t length, uint64_t bytes)
{
	return offset <= bytes && length <= bytes - offset;
}

/* Also a section without a type, because readers of its name or flags treat all sections alike. */
static bool section_fits(const Elf64_Shdr *section, uint64_t bytes)
{
	return section->sh_type == SHT_NOBITS || inside(section->sh_offset, section->sh_size, bytes);
}

static bool segments_fit(const uint8_t *image, const Elf64_Ehdr *header, uint64_t bytes)
{
	Elf64_Phdr segment;

	if (!header->e_phnum)
		return true;
	if (header->e_phentsize != sizeof(segment) ||
		!inside(header->e_phoff, (uint64_t)header->e_phnum * sizeof(segment), bytes))
		return false;
	for (unsigned i = 0; i < header->e_phnum; i++) {
		memcpy(&segment, image + header->e_phoff + i * sizeof(segment), sizeof(segment));
		if (!inside(segment.p_offset, segment.p_filesz, bytes))
			return false;
	}
	return true;
}

static bool elf_fits(const uint8_t *image, uint64_t bytes)
{
	Elf64_Ehdr header;
	Elf64_Shdr section;
	uint64_t count, names;

	if (bytes < sizeof(header))
		return false;
	memcpy(&header, image, sizeof(header));
	if (header.e_ident[EI_CLASS] != ELFCLASS64)
		return false;
	if (!segments_fit(image, &header, bytes) || header.e_shentsize != sizeof(section) ||
		!inside(header.e_shoff, sizeof(section), bytes))
		return false;
	memcpy(&section, image + header.e_shoff, sizeof(section));
	/* Too many sections for 16 bits: the first section has the numbers. */
	count = header.e_shnum ? header.e_shnum : section.sh_size;
	names = header.e_shstrndx == SHN_XINDEX ? section.sh_link : header.e_shstrndx;
	if (names >= count || count > bytes / sizeof(section) ||
		!inside(header.e_shoff, count * sizeof(section), bytes))
		return false;
	for (uint64_t i = 0; i < count; i++) {
		memcpy(&section, image + header.e_shoff + i * sizeof(section), sizeof(section));
		if (!section_fits(&section, bytes))
			return false;
	}
	return true;
}

/* Compressed data lies completely in the payload, and does not become too large. @at: a member with
 * its header */
static bool packed_fits(const uint8_t *at, const struct fatbin_entry *entry)
{
	struct fatbin_target target;

	if (entry->header_bytes < sizeof(*entry) + sizeof(target))
		return true;
	memcpy(&target, at + sizeof(*entry), sizeof(target));
	return !(target.flags & (FATBIN_FLAG_LZ4 | FATBIN_FLAG_ZSTD)) ||
	       (target.packed_bytes <= entry->payload_bytes && target.unpacked_bytes < FATBIN_UNPACKED_MOST);
}

/* A fat binary is a header, followed by entries with a header each; several may follow one
 * another. */
static bool fatbin_fits(const uint8_t *image, uint64_t bytes)
{
	struct fatbin_header header;
	struct fatbin_entry entry;
	uint64_t at, end;

	if (bytes < sizeof(header))
		return false;
	memcpy(&header, image, sizeof(header));
	if (header.header_bytes < sizeof(header) || !inside(header.header_bytes, header.payload_bytes, bytes))
		return false;
	at = header.header_bytes;
	end = at + header.payload_bytes;
	while (at < end) {
		if (!inside(at, sizeof(entry), end))
			return false;
		memcpy(&entry, image + at, sizeof(entry));
		if (entry.header_bytes < sizeof(entry) || !inside(at, entry.header_bytes, end) ||
			!inside(at + entry.header_bytes, entry.payload_bytes, end) ||
			!packed_fits(image + at, &entry))
			return false;
		at += entry.header_bytes + entry.payload_bytes;
	}
	return true;
}

enum image_kind image_check(const void *image, size_t bytes)
{
	uint32_t magic = 0;

	if (bytes < sizeof(magic))
		return IMAGE_BAD;
	memcpy(&magic, image, sizeof(magic));
	if (!memcmp(image, ELFMAG, SELFMAG))
		return elf_fits(image, bytes) ? IMAGE_ELF : IMAGE_BAD;
	if (magic == FATBIN_MAGIC)
		return fatbin_fits(image, bytes) ? IMAGE_FATBIN : IMAGE_BAD;
	return magic == WRAPPER_MAGIC || memchr(image, '\0', sizeof(magic)) ? IMAGE_BAD : IMAGE_TEXT;
}

unsigned image_architecture(const void *elf)
{
	Elf64_Ehdr header;

	memcpy(&header, elf, sizeof(header));
	return header.e_ident[EI_ABIVERSION] >= ABI_NEW ? ARCH_NEW(header.e_flags) : ARCH_OLD(header.e_flags);
}

static bool elf_is_for(const uint8_t *image, unsigned arch)
{
	Elf64_Ehdr header;

	memcpy(&header, image, sizeof(header));
	return header.e_machine == MACHINE_CUDA && arch == image_architecture(image);
}

static bool fatbin_has_code(const uint8_t *image, unsigned arch)
{
	struct fatbin_header header;
	struct fatbin_entry entry;
	uint64_t at, end;

	memcpy(&header, image, sizeof(header));
	at = header.header_bytes;
	end = at + header.payload_bytes;
	for (; at < end; at += entry.header_bytes + entry.payload_bytes) {
		memcpy(&entry, image + at, sizeof(entry));
		if (fatbin_is_for(image + at, arch))
			return true;
	}
	return false;
}

bool image_has_code(const void *image, size_t bytes, unsigned arch)
{
	switch (image_check(image, bytes)) {
	case IMAGE_ELF:
		return elf_is_for(image, arch);
	case IMAGE_FATBIN:
		return fatbin_has_code(image, arch);
	default:
		return false;
	}
}

#define ARCHIVE_MAGIC "!<arch>\n"

/* Header of an archive's member: only text, padded with blanks. */
struct archive_member {
	char name[16], date[12], user[6], group[6], mode[8], size[10], end[2];
};

/* Lists of names and symbols are text. */
static bool member_fits(const char *at, size_t bytes)
{
	uint32_t magic = 0;

	memcpy(&magic, at, bytes < sizeof(magic) ? bytes : sizeof(magic));
	if (memcmp(&magic, ELFMAG, SELFMAG) != 0 && magic != FATBIN_MAGIC)
		return true;
	return image_check(at, bytes) != IMAGE_BAD;
}

bool image_is_archive(const void *image, size_t bytes)
{
	const char *at = image;
	size_t offset = strlen(ARCHIVE_MAGIC);
	struct archive_member member;
	char digits[sizeof(member.size) + 1] = "";

	if (bytes < offset || memcmp(at, ARCHIVE_MAGIC, offset) != 0)
		return false;
	while (offset < bytes) {
		uint64_t size;

		if (bytes - offset < sizeof(member))
			return false;
		memcpy(&member, at + offset, sizeof(member));
		memcpy(digits, member.size, sizeof(member.size));
		size = strtoull(digits, NULL, 10);
		offset += sizeof(member);
		if (memcmp(member.end, "`\n", 2) != 0 || size > bytes - offset ||
			!member_fits(at + offset, size))
			return false;
		offset += size + size % 2; /* members begin at even places */
	}
	return true;
}
