// The parts of an ELF file of device code, as its readers need them: cubin.c, which asks what
// kernels leave behind, movable.c, which asks which variables may be moved, and cuda/weave.c, which
// adds code. Pure functions on bytes that lie still; any thread.

#ifndef FRMPS_SERVER_BACKEND_ELF_H
#define FRMPS_SERVER_BACKEND_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The table of addresses that code reads, where compilers put every variable and function it
 * names. */
#define ELF_SLOTS ".nv.constant4"
/* Where the __constant__ variables of a program are, in a bank of their own on the device. */
#define ELF_CONSTANTS ".nv.constant3"

/* A file that was checked: everything in the sections lies inside. */
struct elf {
	const uint8_t *image;
	Elf64_Ehdr header;
	uint64_t count, names; /* of sections; the one with their names */
};

/** Checks any bytes. Return: whether they are device code in an ELF file. */
bool elf_open(const uint8_t *image, size_t bytes, struct elf *ret);

/** @index: below elf->count */
Elf64_Shdr elf_section(const struct elf *elf, uint64_t index);

/** A text in a table of texts. NULL if it does not end in there. */
const char *elf_text(const struct elf *elf, const Elf64_Shdr *table, uint64_t at);

/** Whether a text begins with something. @bytes: of `with` that matter; its end may be one */
bool elf_text_begins(
	const struct elf *elf, const Elf64_Shdr *table, uint64_t at, const char *with, uint64_t bytes);

bool elf_section_begins(const struct elf *elf, const Elf64_Shdr *section, const char *with);
bool elf_section_is(const struct elf *elf, const Elf64_Shdr *section, const char *name);

/** Whether a symbol is a string literal, none of the very long ones. @texts: the names of
 * symbols */
bool elf_is_literal(
	const struct elf *elf, const Elf64_Shdr *texts, const Elf64_Shdr *section, const Elf64_Sym *symbol);

/* The one table of symbols. */
struct elf_symbols {
	uint64_t index, count; /* of its section; of symbols, at least one */
	Elf64_Shdr table, texts;
};

/** Return: whether there is one, and it alone, of the usual form. */
bool elf_symbols_open(const struct elf *elf, struct elf_symbols *ret);

/** A symbol. @table: of symbols; index: below its count */
Elf64_Sym elf_symbol(const struct elf *elf, const Elf64_Shdr *table, uint64_t index);

/** Whether a section holds relocations of something that is loaded; of debug information nothing
 * is. */
bool elf_relocates(const struct elf *elf, const Elf64_Shdr *section);

#endif
