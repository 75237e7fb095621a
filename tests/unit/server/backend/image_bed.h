// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The bed of tests of device code: one of the compiler's images (images/), and the parts that tests look at
// or change.

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

/* Section `name` of the image is none by its type, called `as` (no longer than its name), and far outside of it. */
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

#endif
