// The parts of an ELF file of device code, for its readers: cubin.c, which finds the state that
// kernels leave behind, movable.c, which finds variables that may be moved, and cuda/patch.c, which
// adds code. Pure functions on bytes that lie still; any thread.

#ifndef FRMPS_SERVER_BACKEND_ELF_H
#define FRMPS_SERVER_BACKEND_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The table of addresses for code, into which compilers put every variable and function that the
 * code names. */
#define ELF_SLOTS ".nv.constant4"
/* The __constant__ variables of a program, in a bank of their own on the device. */
#define ELF_CONSTANTS ".nv.constant3"

/* A file that was checked: everything in the sections lies inside. */
struct elf {
	const uint8_t *image;
	Elf64_Ehdr header;
	uint64_t count, names; /* of sections; of the section with their names */
};

/** Checks any bytes. Return: true for device code in an ELF file. */
bool elf_open(const uint8_t *image, size_t bytes, struct elf *ret);

/** @index: below elf->count */
Elf64_Shdr elf_section(const struct elf *elf, uint64_t index);

/** A text in a table of texts. NULL without an end inside the table. */
const char *elf_text(const struct elf *elf, const Elf64_Shdr *table, uint64_t at);

/** True if a text begins with another. @bytes: of `with` that matter, perhaps with the NUL */
bool elf_text_begins(
	const struct elf *elf, const Elf64_Shdr *table, uint64_t at, const char *with, uint64_t bytes);

bool elf_section_begins(const struct elf *elf, const Elf64_Shdr *section, const char *with);
bool elf_section_is(const struct elf *elf, const Elf64_Shdr *section, const char *name);

/** True if a symbol is a string literal of moderate length. @texts: the names of symbols */
bool elf_is_literal(
	const struct elf *elf, const Elf64_Shdr *texts, const Elf64_Shdr *section, const Elf64_Sym *symbol);

/* The table of symbols. */
struct elf_symbols {
	uint64_t index, count; /* of its section; of symbols, at least 1 */
	Elf64_Shdr table, texts;
};

/** Return: true if there is exactly one table, of the usual form. */
bool elf_symbols_open(const struct elf *elf, struct elf_symbols *ret);

/** A symbol. @table: of symbols; index: below the table's count */
Elf64_Sym elf_symbol(const struct elf *elf, const Elf64_Shdr *table, uint64_t index);

/** True if a section holds relocations of loaded data; debug information is not loaded. */
bool elf_relocates(const struct elf *elf, const Elf64_Shdr *section);

#endif
