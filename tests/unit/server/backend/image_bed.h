// The bed of tests of device code: one of the compiler's images (images/), and the parts that tests
// look at or change.

#ifndef FRMPS_TESTS_UNIT_SERVER_BACKEND_IMAGE_BED_H
#define FRMPS_TESTS_UNIT_SERVER_BACKEND_IMAGE_BED_H

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"

#define IMAGE_BYTES 65536u

static uint8_t *image;
static size_t image_bytes;

static inline void load(const char *name)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", getenv("FRMPS_TEST_IMAGES"), name);
	file = fopen(path, "rb");
	ck_assert_ptr_nonnull(file);
	free(image);
	image = malloc(IMAGE_BYTES);
	image_bytes = fread(image, 1, IMAGE_BYTES, file);
	ck_assert_uint_gt(image_bytes, 1000);
	fclose(file);
}

static inline void unload(void)
{
	free(image);
	image = NULL;
}

static inline Elf64_Ehdr header_in(const uint8_t *file)
{
	Elf64_Ehdr header;

	memcpy(&header, file, sizeof(header));
	return header;
}

/* A section of the image, or of what was made of it. */
static inline void *section_in(uint8_t *file, const char *name, Elf64_Shdr **ret)
{
	Elf64_Ehdr header = header_in(file);
	Elf64_Shdr *sections = (void *)(file + header.e_shoff);
	const char *names = (const char *)file + sections[header.e_shstrndx].sh_offset;

	for (unsigned i = 1; i < header.e_shnum; i++)
		if (!strcmp(names + sections[i].sh_name, name)) {
			*ret = &sections[i];
			return file + sections[i].sh_offset;
		}
	ck_abort_msg("no section %s", name);
}

/* Section `name` of the image is none by its type, called `as` (no longer than its name), and far
 * outside of it. */
static inline void misplace(const char *name, const char *as)
{
	Elf64_Shdr *found, *texts;
	char *names = section_in(image, ".shstrtab", &texts);

	section_in(image, name, &found);
	memcpy(names + found->sh_name, as, strlen(as));
	found->sh_type = SHT_NULL;
	found->sh_offset = UINT64_C(1) << 40;
}

/* What is looked for by its name, and by its flags. */
static const struct {
	const char *name, *as;
} misplaced[] = {{".rela.nv.constant4", ".nv.resolvedrela"}, {".text.counts", ".text.counts"}};
#define MISPLACED 2

static inline Elf64_Sym *symbol(const char *name)
{
	Elf64_Shdr *symtab, *strtab;
	Elf64_Sym *symbols = section_in(image, ".symtab", &symtab);
	const char *texts = section_in(image, ".strtab", &strtab);

	for (uint64_t i = 1; i < symtab->sh_size / sizeof(*symbols); i++)
		if (!strcmp(texts + symbols[i].st_name, name))
			return &symbols[i];
	ck_abort_msg("no symbol %s", name);
}

/* An image of our own: so many sections, with the names in the first, and bytes from `ret_at`
 * on. */
static inline Elf64_Shdr *begin_image(unsigned sections, size_t bytes, size_t *ret_at)
{
	Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, [EI_ABIVERSION] = 7},
		.e_machine = 190,
		.e_flags = 90,
		.e_shoff = sizeof(head),
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = (Elf64_Half)sections,
		.e_shstrndx = 1};

	*ret_at = sizeof(head) + sections * sizeof(Elf64_Shdr);
	image_bytes = *ret_at + bytes;
	image = calloc(1, image_bytes);
	memcpy(image, &head, sizeof(head));
	return (void *)(image + head.e_shoff);
}

/* Symbols that all are the same text, and tables of relocations, all the same one as well, that
 * name the first. */
static inline void build_texts(size_t symbols, size_t text_bytes, size_t relocations, unsigned tables)
{
	static const char names[64] = "\0$str\0.nv.global.init";
	const Elf64_Sym text = {.st_name = 1,
		.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
		.st_shndx = 3,
		.st_size = text_bytes};
	size_t at[4];
	Elf64_Shdr *sections = begin_image(4 + tables,
		sizeof(names) + symbols * sizeof(text) + relocations * sizeof(Elf64_Rel) + text_bytes, at);

	at[1] = at[0] + sizeof(names);
	at[2] = at[1] + symbols * sizeof(text);
	at[3] = at[2] + relocations * sizeof(Elf64_Rel);
	memcpy(image + at[0], names, sizeof(names));
	for (size_t i = 1; i < symbols; i++)
		memcpy(image + at[1] + i * sizeof(text), &text, sizeof(text));
	for (size_t i = 0; i < relocations; i++)
		((Elf64_Rel *)(void *)(image + at[2]))[i].r_info = ELF64_R_INFO(UINT64_C(1), 2);
	memset(image + at[3], 'a', text_bytes - 1);
	sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = at[0], .sh_size = sizeof(names)};
	sections[2] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
		.sh_link = 1,
		.sh_entsize = sizeof(text),
		.sh_offset = at[1],
		.sh_size = symbols * sizeof(text)};
	sections[3] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
		.sh_name = 6,
		.sh_flags = SHF_ALLOC | SHF_WRITE,
		.sh_offset = at[3],
		.sh_size = text_bytes,
		.sh_addralign = 8};
	for (unsigned i = 0; i < tables; i++)
		sections[4 + i] = (Elf64_Shdr){.sh_type = SHT_REL,
			.sh_link = 2,
			.sh_info = 3,
			.sh_entsize = sizeof(Elf64_Rel),
			.sh_offset = at[2],
			.sh_size = relocations * sizeof(Elf64_Rel)};
}

#endif
