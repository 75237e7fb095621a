// See elf.h.

#include "server/backend/elf.h"

#include <string.h>

#include "server/backend/image.h"

#define MACHINE_CUDA 190
/* Longer names are invalid, with their NUL. */
#define NAME_MAX_BYTES 65536u
#define SECTIONS_MAX   (UINT64_C(1) << 20)
/* Any number of symbols may name the same bytes, and each is looked at: longer texts are
 * variables. */
#define LITERAL_MAX 4096u
/* Of its symbol, with the NUL: contains a number of 64 bits at most. */
#define LITERAL_NAME_MAX 32u

Elf64_Shdr elf_section(const struct elf *elf, uint64_t index)
{
	Elf64_Shdr section;

	memcpy(&section, elf->image + elf->header.e_shoff + index * sizeof(section), sizeof(section));
	return section;
}

bool elf_open(const uint8_t *image, size_t bytes, struct elf *ret)
{
	struct elf elf = {.image = image};
	Elf64_Shdr first;

	if (image_check(image, bytes) != IMAGE_ELF)
		return false;
	memcpy(&elf.header, image, sizeof(elf.header));
	first = elf_section(&elf, 0);
	elf.count = elf.header.e_shnum ? elf.header.e_shnum : first.sh_size;
	elf.names = elf.header.e_shstrndx == SHN_XINDEX ? first.sh_link : elf.header.e_shstrndx;
	*ret = elf;
	return elf.header.e_machine == MACHINE_CUDA && elf.count <= SECTIONS_MAX;
}

/* Where a text in a table of texts begins. @ret_most: its longest length, with the NUL; 0: none */
static const char *text_at(const struct elf *elf, const Elf64_Shdr *table, uint64_t at, uint64_t *ret_most)
{
	bool is_there = table->sh_type != SHT_NOBITS && table->sh_type != SHT_NULL && at < table->sh_size;
	uint64_t most = is_there ? table->sh_size - at : 0;

	*ret_most = most < NAME_MAX_BYTES ? most : NAME_MAX_BYTES;
	return (const char *)elf->image + (is_there ? table->sh_offset + at : 0);
}

const char *elf_text(const struct elf *elf, const Elf64_Shdr *table, uint64_t at)
{
	uint64_t most;
	const char *text = text_at(elf, table, at, &most);

	return most && memchr(text, '\0', most) ? text : NULL;
}

bool elf_text_begins(
	const struct elf *elf, const Elf64_Shdr *table, uint64_t at, const char *with, uint64_t bytes)
{
	uint64_t most;
	const char *text = text_at(elf, table, at, &most);

	return bytes <= most && !memcmp(text, with, bytes);
}

bool elf_section_begins(const struct elf *elf, const Elf64_Shdr *section, const char *with)
{
	Elf64_Shdr names = elf_section(elf, elf->names);

	return elf_text_begins(elf, &names, section->sh_name, with, strlen(with));
}

bool elf_section_is(const struct elf *elf, const Elf64_Shdr *section, const char *name)
{
	Elf64_Shdr names = elf_section(elf, elf->names);

	return elf_text_begins(elf, &names, section->sh_name, name, strlen(name) + 1);
}

/* A name followed by a number. */
static bool is_numbered(const char *name, const char *stem)
{
	const char *number = name + strlen(stem);

	return !strncmp(name, stem, strlen(stem)) && *number &&
	       strspn(number, "0123456789") == strlen(number);
}

static bool is_literal_name(const struct elf *elf, const Elf64_Shdr *texts, uint64_t at)
{
	uint64_t most;
	const char *name = text_at(elf, texts, at, &most);

	if (!most || !memchr(name, '\0', most < LITERAL_NAME_MAX ? most : LITERAL_NAME_MAX))
		return false;
	return !strcmp(name, "$str") || is_numbered(name, "$str$") || is_numbered(name, "__unnamed_");
}

static bool is_text(const uint8_t *bytes, uint64_t count)
{
	return count && count <= LITERAL_MAX && memchr(bytes, '\0', count) == bytes + count - 1;
}

bool elf_is_literal(
	const struct elf *elf, const Elf64_Shdr *texts, const Elf64_Shdr *section, const Elf64_Sym *symbol)
{
	return is_literal_name(elf, texts, symbol->st_name) && section->sh_type == SHT_PROGBITS &&
	       symbol->st_value <= section->sh_size &&
	       symbol->st_size <= section->sh_size - symbol->st_value &&
	       is_text(elf->image + section->sh_offset + symbol->st_value, symbol->st_size);
}

static bool is_relocations(const struct elf *elf, const Elf64_Shdr *section)
{
	return section->sh_size && (section->sh_type == SHT_REL || section->sh_type == SHT_RELA ||
					   elf_section_begins(elf, section, ".nv.resolvedrela"));
}

static bool changes_what_is_loaded(const struct elf *elf, const Elf64_Shdr *relocations)
{
	return relocations->sh_info >= elf->count ||
	       (elf_section(elf, relocations->sh_info).sh_flags & SHF_ALLOC);
}

bool elf_relocates(const struct elf *elf, const Elf64_Shdr *section)
{
	return is_relocations(elf, section) && changes_what_is_loaded(elf, section);
}

bool elf_symbols_open(const struct elf *elf, struct elf_symbols *ret)
{
	*ret = (struct elf_symbols){0};
	for (uint64_t i = 1; i < elf->count; i++) {
		Elf64_Shdr section = elf_section(elf, i);

		if (section.sh_type != SHT_SYMTAB)
			continue;
		if (ret->index || section.sh_entsize != sizeof(Elf64_Sym) || section.sh_link >= elf->count)
			return false;
		*ret = (struct elf_symbols){.index = i,
			.count = section.sh_size / sizeof(Elf64_Sym),
			.table = section,
			.texts = elf_section(elf, section.sh_link)};
	}
	return ret->count > 0;
}

Elf64_Sym elf_symbol(const struct elf *elf, const Elf64_Shdr *table, uint64_t index)
{
	Elf64_Sym symbol;

	memcpy(&symbol, elf->image + table->sh_offset + index * sizeof(symbol), sizeof(symbol));
	return symbol;
}
