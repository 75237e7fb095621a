// See object.h.

#include "server/backend/cuda/object.h"

#include <ar.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/fatbin.h"

#define MACHINE_CUDA 190

/* The compilers' sections: for finished code, and for code that still has to be linked for the
 * device. */
static const char *const places[] = {".nv_fatbin", "__nv_relfatbin"};

bool object_is_device_code(const uint8_t *elf)
{
	Elf64_Ehdr header;

	memcpy(&header, elf, sizeof(header));
	return header.e_machine == MACHINE_CUDA;
}

static Elf64_Shdr section_at(const uint8_t *elf, uint64_t table, uint64_t index)
{
	Elf64_Shdr section;

	memcpy(&section, elf + table + index * sizeof(section), sizeof(section));
	return section;
}

static bool is_place(const uint8_t *elf, const Elf64_Shdr *names, const Elf64_Shdr *section)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		size_t bytes = strlen(places[i]) + 1;

		if (section->sh_name < names->sh_size && bytes <= names->sh_size - section->sh_name &&
			!memcmp(elf + names->sh_offset + section->sh_name, places[i], bytes))
			return true;
	}
	return false;
}

/* Consecutive, each at a multiple of eight. */
static CUresult visit_section(const uint8_t *at, uint64_t bytes, object_visit *visit, void *context)
{
	struct fatbin_header header;
	CUresult code = CUDA_SUCCESS;

	while (!code && bytes >= sizeof(header)) {
		uint64_t whole;

		memcpy(&header, at, sizeof(header));
		if (header.magic != FATBIN_MAGIC || header.header_bytes < sizeof(header) ||
			header.payload_bytes > bytes || header.header_bytes > bytes - header.payload_bytes)
			return CUDA_ERROR_INVALID_IMAGE;
		whole = header.header_bytes + header.payload_bytes;
		code = visit(context, at, whole);
		whole = (whole + 7) / 8 * 8;
		whole = whole < bytes ? whole : bytes;
		at += whole;
		bytes -= whole;
	}
	return code;
}

CUresult object_each_fatbin(const uint8_t *elf, object_visit *visit, void *context)
{
	CUresult code = CUDA_SUCCESS;
	Elf64_Shdr names, section;
	Elf64_Ehdr header;
	uint64_t count;

	memcpy(&header, elf, sizeof(header));
	section = section_at(elf, header.e_shoff, 0);
	/* Too many for 16 bits: the first section has the numbers. */
	count = header.e_shnum ? header.e_shnum : section.sh_size;
	names = section_at(
		elf, header.e_shoff, header.e_shstrndx == SHN_XINDEX ? section.sh_link : header.e_shstrndx);
	if (names.sh_type != SHT_STRTAB)
		return CUDA_ERROR_INVALID_IMAGE;
	for (uint64_t i = 1; !code && i < count; i++) {
		section = section_at(elf, header.e_shoff, i);
		if (section.sh_type != SHT_NOBITS && is_place(elf, &names, &section))
			code = visit_section(elf + section.sh_offset, section.sh_size, visit, context);
	}
	return code;
}

CUresult object_each_member(const uint8_t *archive, size_t bytes, object_visit *visit, void *context)
{
	CUresult code = CUDA_SUCCESS;
	size_t at = SARMAG;

	while (!code && at < bytes) {
		char digits[sizeof(((struct ar_hdr *)0)->ar_size) + 1] = "";
		struct ar_hdr header;
		uint64_t size;

		memcpy(&header, archive + at, sizeof(header));
		memcpy(digits, header.ar_size, sizeof(header.ar_size));
		size = strtoull(digits, NULL, 10);
		at += sizeof(header);
		/* Lists of names and symbols are none. */
		if (size >= SELFMAG && !memcmp(archive + at, ELFMAG, SELFMAG))
			code = visit(context, archive + at, size);
		at += size + size % 2; /* members begin at even places */
	}
	return code;
}
