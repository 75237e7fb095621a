// Dumps that the driver wrote (dumps/), and what tests change in them.

#ifndef FRMPS_TESTS_UNIT_SERVER_BACKEND_DUMP_BED_H
#define FRMPS_TESTS_UNIT_SERVER_BACKEND_DUMP_BED_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"

static inline uint8_t *dump_load(const char *name, size_t *ret_size)
{
	const char *folder = getenv("FRMPS_TEST_DUMPS");
	uint8_t *bytes = malloc(1 << 20);
	char path[512];
	FILE *file;

	ck_assert_ptr_nonnull(folder);
	snprintf(path, sizeof(path), "%s/%s.dump", folder, name);
	file = fopen(path, "rb");
	ck_assert_ptr_nonnull(file);
	*ret_size = fread(bytes, 1, 1 << 20, file);
	fclose(file);
	return realloc(bytes, *ret_size);
}

static inline Elf64_Shdr *dump_find_section(uint8_t *bytes, uint32_t type)
{
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)bytes;
	Elf64_Shdr *sections = (Elf64_Shdr *)(void *)(bytes + head->e_shoff);

	for (unsigned i = 0; i < head->e_shnum; i++)
		if (sections[i].sh_type == type)
			return &sections[i];
	return NULL;
}

/* Its instruction, in a dump in which nothing else is left of it: as if its warps had ended. */
#define CULPRITS_PC UINT64_C(0x7f498b7a02c0)
/* Who is on SM 0 then. */
#define BYSTANDERS_PC	  UINT64_C(0x7f498b7a2190)
#define BYSTANDERS_MODULE UINT64_C(0x5621266cbb10)

static inline uint8_t *dump_load_without_culprit(size_t *ret_size)
{
	uint8_t *bytes = dump_load("stack", ret_size);
	Elf64_Shdr *sms = dump_find_section(bytes, 0x8000000b), *warps = dump_find_section(bytes, 0x8000000e);
	const uint8_t nothing[48] = {0};
	const uint32_t none = 0;

	memcpy(bytes + sms->sh_offset + 126 * sms->sh_entsize + 8, nothing, 16);
	/* Blocks, warps and lanes of four: it is the last. */
	memcpy(bytes + warps[9].sh_offset + 24, &none, sizeof(none));
	memcpy(bytes + warps[10].sh_offset + 32, &none, sizeof(none));
	return bytes;
}

static inline void dump_say_of_sm(uint8_t *bytes, unsigned index, uint64_t pc)
{
	Elf64_Shdr *sms = dump_find_section(bytes, 0x8000000b);
	uint8_t *sm = bytes + sms->sh_offset + index * sms->sh_entsize;
	const uint32_t says[2] = {14, 1};

	memcpy(sm + 8, says, sizeof(says));
	memcpy(sm + 16, &pc, sizeof(pc));
}

/* The first warp, on SM 0, and its lanes: of another program. */
static inline void dump_say_of_warp(uint8_t *bytes, uint64_t pc, bool lanes)
{
	Elf64_Shdr *warps = dump_find_section(bytes, 0x8000000e);
	uint8_t *warp = bytes + warps->sh_offset, *lane = bytes + warps[1].sh_offset;
	const uint32_t one = 1, exception = 14;

	memcpy(warp, &pc, sizeof(pc));
	memcpy(warp + 24, &one, sizeof(one));
	for (unsigned i = 0; lanes && i < 32; i++)
		memcpy(lane + i * warps[1].sh_entsize + 32, &exception, sizeof(exception));
}

#endif
