// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See cubin.h. A cubin is an ELF file; variables are symbols of its writable sections, .nv.global.init and
// .nv.global. Whether a variable was declared const is not in it, and nearly every module of a C++ library
// has some variables. So those count that kernels may have written, and of the kernels those that may have
// done it:
//
//   - Code gets a variable's address from a relocation. If that is in its instructions, this code has it.
//     If it is in the table of addresses .nv.constant4, where compilers put every variable, the code has it
//     that reads the place (sass.h). If it is in anything else that is loaded, another variable for example,
//     all code may have it. A variable that no code has is out of every kernel's reach (tag objects of the
//     C++ library are like that).
//   - What a function has that is no kernel, every kernel may have.
//   - A string literal may not be written. The compiler calls them $str, $str$1, … and __unnamed_1, …, and
//     they hold a text that ends where they end.
//
// The banks of constants are not among them: kernels cannot write there, and what the program copies there
// has been looked up by it (executor/variable.c).
//
// A device's heap is a state as well, and so is whatever else of the driver's a kernel calls: the functions
// are symbols that are not defined. Those that keep nothing are known by name.
//
// What cannot be told is not guessed: two variables of one name, memory that relocations name by its section,
// tables that are not as expected. Such an image has "more" than can be taken along.
//
// From devices 10.0 on there is a second form of the whole program in the file, sections .nv.merc.*, with
// symbols and relocations of its own that are the same ones.
//
// Formats are those of nvcc 11 to 13. Pure functions on untrusted bytes that lie still; any thread.

#include "server/backend/cubin.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/image.h"
#include "server/backend/sass.h"

#define MACHINE_CUDA 190
/* Longer names are none, with their end. */
#define NAME_MAX_BYTES 65536u
#define SECTIONS_MAX   (UINT64_C(1) << 20)
/* Bytes of tables and code that are looked at, for each byte of the file. */
#define WORK_FACTOR 64u

/* In st_other: a kernel. */
#define OTHER_ENTRY 0x10u
/* Its code is in a section of this name and its own. */
#define CODE  ".text."
#define SLOTS ".nv.constant4"

#define NOT_UNDERSTOOD "its image is not understood"
#define NO_MEMORY      "there was no memory to look at its image"

/* A file that was checked: everything in the sections lies inside. */
struct elf {
	const uint8_t *image;
	Elf64_Ehdr header;
	uint64_t count, names;
};

/* The symbols, and what is known of them. */
struct symbols {
	Elf64_Shdr table, texts, indices; /* indices: of sections, for symbols that have no room for one */
	uint64_t index, count;
	bool *is_had;	/* some code may have the address */
	bool *is_entry; /* by section: the code is a kernel's */
};

/* The table of addresses. */
struct slots {
	uint64_t index, count; /* of its section; of slots */
	uint64_t *symbols;     /* by slot, 0: none */
	bool *is_function, *is_read;
};

struct reading {
	struct elf elf;
	struct symbols symbols;
	struct slots slots;
	struct statics *statics;
	const char *wrong; /* NULL: nothing yet */
	uint64_t work;	   /* that may still be done, bytes */
	uint64_t noted;	   /* section of the code that was noted last */
};

/* Tables may overlap, so that a small file takes for ever. */
static void spend(struct reading *reading, uint64_t bytes)
{
	if (bytes > reading->work)
		reading->wrong = NOT_UNDERSTOOD;
	else
		reading->work -= bytes;
}

static Elf64_Shdr section_of(const struct elf *elf, uint64_t index)
{
	Elf64_Shdr section;

	memcpy(&section, elf->image + elf->header.e_shoff + index * sizeof(section), sizeof(section));
	return section;
}

static bool elf_open(const uint8_t *image, size_t bytes, struct elf *ret)
{
	struct elf elf = {.image = image};
	Elf64_Shdr first;

	if (image_check(image, bytes) != IMAGE_ELF)
		return false;
	memcpy(&elf.header, image, sizeof(elf.header));
	first = section_of(&elf, 0);
	elf.count = elf.header.e_shnum ? elf.header.e_shnum : first.sh_size;
	elf.names = elf.header.e_shstrndx == SHN_XINDEX ? first.sh_link : elf.header.e_shstrndx;
	*ret = elf;
	return elf.header.e_machine == MACHINE_CUDA && elf.count <= SECTIONS_MAX;
}

/* Where a text in a table of texts begins. @ret_most: its longest, with the end; 0: there is none */
static const char *text_at(const struct elf *elf, const Elf64_Shdr *table, uint64_t at, uint64_t *ret_most)
{
	bool is_there = table->sh_type != SHT_NOBITS && table->sh_type != SHT_NULL && at < table->sh_size;
	uint64_t most = is_there ? table->sh_size - at : 0;

	*ret_most = most < NAME_MAX_BYTES ? most : NAME_MAX_BYTES;
	return (const char *)elf->image + (is_there ? table->sh_offset + at : 0);
}

/* NULL if it does not end in there. */
static const char *text_in(const struct elf *elf, const Elf64_Shdr *table, uint64_t at)
{
	uint64_t most;
	const char *text = text_at(elf, table, at, &most);

	return most && memchr(text, '\0', most) ? text : NULL;
}

/* @bytes: of `with` that matter; its end may be one. */
static bool text_begins(
	const struct elf *elf, const Elf64_Shdr *table, uint64_t at, const char *with, uint64_t bytes)
{
	uint64_t most;
	const char *text = text_at(elf, table, at, &most);

	return bytes <= most && !memcmp(text, with, bytes);
}

static bool section_begins(const struct elf *elf, const Elf64_Shdr *section, const char *with)
{
	Elf64_Shdr names = section_of(elf, elf->names);

	return text_begins(elf, &names, section->sh_name, with, strlen(with));
}

/* What a block or a thread has for itself is gone with it. */
static bool holds_variables(const struct elf *elf, const Elf64_Shdr *section)
{
	if (!section->sh_size || section_begins(elf, section, ".nv.merc.") ||
		section_begins(elf, section, ".nv.shared") || section_begins(elf, section, ".nv.local"))
		return false;
	return section_begins(elf, section, ".nv.global") ||
	       ((section->sh_flags & SHF_ALLOC) && (section->sh_flags & SHF_WRITE));
}

/* ---- symbols ---- */

/* The one table of symbols. Return: NULL or what is wrong. */
static const char *symbols_open(const struct elf *elf, struct symbols *symbols)
{
	for (uint64_t i = 1; i < elf->count; i++) {
		Elf64_Shdr section = section_of(elf, i);

		if (section.sh_type == SHT_SYMTAB_SHNDX)
			symbols->indices = section;
		if (section.sh_type != SHT_SYMTAB)
			continue;
		if (symbols->index || section.sh_entsize != sizeof(Elf64_Sym) ||
			section.sh_link >= elf->count)
			return NOT_UNDERSTOOD;
		symbols->index = i;
		symbols->table = section;
		symbols->texts = section_of(elf, section.sh_link);
		symbols->count = section.sh_size / sizeof(Elf64_Sym);
	}
	/* Without them nobody knows what it calls. */
	if (!symbols->count)
		return NOT_UNDERSTOOD;
	symbols->is_had = calloc(symbols->count, sizeof(bool));
	symbols->is_entry = calloc(elf->count, sizeof(bool));
	return symbols->is_had && symbols->is_entry ? NULL : NO_MEMORY;
}

static Elf64_Sym symbol_at(const struct reading *reading, uint64_t index)
{
	Elf64_Sym symbol;

	memcpy(&symbol, reading->elf.image + reading->symbols.table.sh_offset + index * sizeof(symbol),
		sizeof(symbol));
	return symbol;
}

/* NULL if it does not end. */
static const char *symbol_name(const struct reading *reading, const Elf64_Sym *symbol)
{
	return text_in(&reading->elf, &reading->symbols.texts, symbol->st_name);
}

/* The section of a symbol. Return: the number of sections if it is none of them. */
static uint64_t section_index(const struct reading *reading, uint64_t index, const Elf64_Sym *symbol)
{
	const Elf64_Shdr *indices = &reading->symbols.indices;
	uint64_t none = reading->elf.count;
	uint32_t wide;

	if (symbol->st_shndx < SHN_LORESERVE)
		return symbol->st_shndx < none ? symbol->st_shndx : none;
	if (symbol->st_shndx != SHN_XINDEX || indices->sh_size / sizeof(wide) <= index)
		return none;
	memcpy(&wide, reading->elf.image + indices->sh_offset + index * sizeof(wide), sizeof(wide));
	return wide < none ? wide : none;
}

static void find_entries(struct reading *reading)
{
	for (uint64_t i = 1; i < reading->symbols.count; i++) {
		Elf64_Sym symbol = symbol_at(reading, i);
		uint64_t section = section_index(reading, i, &symbol);

		if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && (symbol.st_other & OTHER_ENTRY) &&
			symbol.st_shndx != SHN_UNDEF && section < reading->elf.count)
			reading->symbols.is_entry[section] = true;
	}
}

/* ---- what is a variable ---- */

/* A name with a number behind it. */
static bool is_numbered(const char *name, const char *stem)
{
	const char *number = name + strlen(stem);

	return !strncmp(name, stem, strlen(stem)) && *number &&
	       strspn(number, "0123456789") == strlen(number);
}

static bool is_text(const uint8_t *bytes, uint64_t count)
{
	return count && memchr(bytes, '\0', count) == bytes + count - 1;
}

static bool is_literal(const struct reading *reading, const Elf64_Shdr *section, const Elf64_Sym *symbol)
{
	const struct elf *elf = &reading->elf;
	const Elf64_Shdr *texts = &reading->symbols.texts;
	const char *name;

	if (!text_begins(elf, texts, symbol->st_name, "$str", 4) &&
		!text_begins(elf, texts, symbol->st_name, "__unnamed_", 10))
		return false;
	name = text_in(elf, texts, symbol->st_name);
	if (!name)
		return false;
	if (strcmp(name, "$str") != 0 && !is_numbered(name, "$str$") && !is_numbered(name, "__unnamed_"))
		return false;
	return section->sh_type == SHT_PROGBITS && symbol->st_value <= section->sh_size &&
	       symbol->st_size <= section->sh_size - symbol->st_value &&
	       is_text(elf->image + section->sh_offset + symbol->st_value, symbol->st_size);
}

/* Whether kernels that have a symbol's address may write there. */
static bool may_be_written(const struct reading *reading, uint64_t index)
{
	Elf64_Sym symbol = symbol_at(reading, index);
	uint64_t at = section_index(reading, index, &symbol);
	Elf64_Shdr section;

	if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS)
		return false;
	if (at == reading->elf.count)
		return true;
	section = section_of(&reading->elf, at);
	return holds_variables(&reading->elf, &section) && !is_literal(reading, &section, &symbol);
}

/* ---- whose code has it ---- */

/* Code has the symbol's address. */
static void note_had_by(struct reading *reading, uint64_t symbol, uint64_t section)
{
	Elf64_Shdr code = section_of(&reading->elf, section),
		   names = section_of(&reading->elf, reading->elf.names);
	const char *name;

	if (!may_be_written(reading, symbol))
		return;
	reading->symbols.is_had[symbol] = true;
	if (reading->noted == section)
		return;
	reading->noted = section;
	name = reading->symbols.is_entry[section] && section_begins(&reading->elf, &code, CODE)
		       ? text_in(&reading->elf, &names, code.sh_name)
		       : NULL;
	if (name)
		statics_add_kernel(reading->statics, name + strlen(CODE));
	else
		reading->statics->every = true;
}

static void note_had_by_all(struct reading *reading, uint64_t symbol)
{
	if (!may_be_written(reading, symbol))
		return;
	reading->symbols.is_had[symbol] = true;
	reading->statics->every = true;
}

static void note_slot(struct reading *reading, uint64_t symbol, uint64_t offset)
{
	struct slots *slots = &reading->slots;
	uint64_t slot = offset / SASS_SLOT_BYTES;

	if (offset % SASS_SLOT_BYTES || slot >= slots->count || slots->symbols[slot]) {
		note_had_by_all(reading, symbol);
		return;
	}
	slots->symbols[slot] = symbol;
	slots->is_function[slot] = ELF64_ST_TYPE(symbol_at(reading, symbol).st_info) == STT_FUNC;
}

static void note_relocation(struct reading *reading, uint64_t symbol, uint64_t target, uint64_t offset)
{
	bool is_code =
		target < reading->elf.count && (section_of(&reading->elf, target).sh_flags & SHF_EXECINSTR);

	if (is_code)
		note_had_by(reading, symbol, target);
	else if (reading->slots.index && target == reading->slots.index)
		note_slot(reading, symbol, offset);
	else
		note_had_by_all(reading, symbol);
}

static bool is_relocations(const struct elf *elf, const Elf64_Shdr *section)
{
	return section->sh_size && (section->sh_type == SHT_REL || section->sh_type == SHT_RELA ||
					   section_begins(elf, section, ".nv.resolvedrela"));
}

/* Whether it changes something that is loaded; of debug information nothing is. */
static bool changes_what_is_loaded(const struct elf *elf, const Elf64_Shdr *section)
{
	return section->sh_info >= elf->count || (section_of(elf, section->sh_info).sh_flags & SHF_ALLOC);
}

static void read_relocations(struct reading *reading, const Elf64_Shdr *section)
{
	/* Elf64_Rela begins like this. */
	Elf64_Rel one;

	if ((section->sh_entsize != sizeof(Elf64_Rel) && section->sh_entsize != sizeof(Elf64_Rela)) ||
		section->sh_link != reading->symbols.index || section->sh_type == SHT_NOBITS)
		reading->wrong = NOT_UNDERSTOOD;
	spend(reading, section->sh_size);
	for (uint64_t at = 0; !reading->wrong && section->sh_size - at >= section->sh_entsize;
		at += section->sh_entsize) {
		memcpy(&one, reading->elf.image + section->sh_offset + at, sizeof(one));
		if (ELF64_R_SYM(one.r_info) < reading->symbols.count)
			note_relocation(reading, ELF64_R_SYM(one.r_info), section->sh_info, one.r_offset);
		else
			reading->wrong = NOT_UNDERSTOOD;
	}
}

/* Return: NULL or what is wrong. */
static const char *slots_open(const struct elf *elf, struct slots *slots)
{
	Elf64_Shdr names = section_of(elf, elf->names);

	for (uint64_t i = 1; i < elf->count && !slots->index; i++) {
		Elf64_Shdr section = section_of(elf, i);

		if (section.sh_type != SHT_PROGBITS ||
			!text_begins(elf, &names, section.sh_name, SLOTS, sizeof(SLOTS)))
			continue;
		slots->index = i;
		slots->count = section.sh_size / SASS_SLOT_BYTES;
	}
	slots->symbols = calloc(slots->count + 1, sizeof(*slots->symbols));
	slots->is_function = calloc(slots->count + 1, sizeof(bool));
	slots->is_read = calloc(slots->count + 1, sizeof(bool));
	return slots->symbols && slots->is_function && slots->is_read ? NULL : NO_MEMORY;
}

/* Which slots some code reads; where that cannot be told, all of them. */
static void read_code(struct reading *reading, uint64_t index, bool is_known)
{
	Elf64_Shdr section = section_of(&reading->elf, index);
	struct slots *slots = &reading->slots;
	const struct sass_table table = {slots->count, slots->is_function, slots->is_read};

	if (!(section.sh_flags & SHF_EXECINSTR) || section.sh_type == SHT_NOBITS || !slots->count)
		return;
	spend(reading, section.sh_size + slots->count);
	if (reading->wrong)
		return;
	memset(slots->is_read, 0, slots->count * sizeof(bool));
	is_known =
		is_known && sass_note_reads(reading->elf.image + section.sh_offset, section.sh_size, &table);
	for (uint64_t slot = 0; slot < slots->count; slot++)
		if (slots->symbols[slot] && (slots->is_read[slot] || !is_known))
			note_had_by(reading, slots->symbols[slot], index);
}

static void find_addresses(struct reading *reading)
{
	const struct elf *elf = &reading->elf;
	bool is_known = sass_is_known(image_architecture(elf->image));

	for (uint64_t i = 1; !reading->wrong && i < elf->count; i++) {
		Elf64_Shdr section = section_of(elf, i);

		if (is_relocations(elf, &section) && changes_what_is_loaded(elf, &section))
			read_relocations(reading, &section);
	}
	for (uint64_t i = 1; !reading->wrong && i < elf->count; i++)
		read_code(reading, i, is_known);
}

/* ---- what counts ---- */

/* What a kernel may call of the driver's without leaving anything behind. */
static bool is_harmless(const char *name)
{
	return !strcmp(name, "vprintf") || !strcmp(name, "__assertfail");
}

static void add_call(struct statics *statics, const char *name)
{
	if (!name)
		statics_add_more(statics, NOT_UNDERSTOOD);
	else if (!strcmp(name, "malloc") || !strcmp(name, "free"))
		statics_add_more(statics, "its kernels use the device's heap");
	else if (!is_harmless(name))
		statics_add_more(statics, "its kernels call functions of the driver");
}

static void add_variable(struct reading *reading, uint64_t index, const Elf64_Sym *symbol)
{
	const char *name = symbol_name(reading, symbol);

	if (ELF64_ST_TYPE(symbol->st_info) == STT_SECTION)
		statics_add_more(reading->statics, "its variables have no names");
	else if (!name || !*name || !symbol->st_size ||
		 section_index(reading, index, symbol) == reading->elf.count)
		statics_add_more(reading->statics, NOT_UNDERSTOOD);
	else
		statics_add(reading->statics, name, symbol->st_size);
}

static void add_symbol(struct reading *reading, uint64_t index)
{
	Elf64_Sym symbol = symbol_at(reading, index);

	/* One that is local to the file is nobody else's. */
	if (symbol.st_shndx == SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT &&
		ELF64_ST_BIND(symbol.st_info) != STB_LOCAL)
		add_call(reading->statics, symbol_name(reading, &symbol));
	else if (reading->symbols.is_had[index])
		add_variable(reading, index, &symbol);
}

static int compare(const void *a, const void *b)
{
	const struct statics_variable *left = a, *right = b;

	return strcmp(left->name, right->name);
}

/* Of one image: a name stands for one variable. */
static void look_for_doubles(struct statics *statics)
{
	if (statics->count)
		qsort(statics->variables, statics->count, sizeof(statics->variables[0]), compare);
	for (uint32_t i = 1; i < statics->count; i++)
		if (!strcmp(statics->variables[i - 1].name, statics->variables[i].name))
			statics_add_more(statics, "two of its variables have the same name");
}

static void read_cubin(struct reading *reading)
{
	const struct elf *elf = &reading->elf;

	reading->wrong = symbols_open(elf, &reading->symbols);
	if (!reading->wrong)
		reading->wrong = slots_open(elf, &reading->slots);
	if (!reading->wrong) {
		find_entries(reading);
		find_addresses(reading);
	}
	/* The first one is none. */
	for (uint64_t i = 1; !reading->wrong && !reading->statics->more && i < reading->symbols.count; i++)
		add_symbol(reading, i);
	if (reading->wrong)
		statics_add_more(reading->statics, reading->wrong);
	look_for_doubles(reading->statics);
	free(reading->symbols.is_had);
	free(reading->symbols.is_entry);
	free(reading->slots.symbols);
	free(reading->slots.is_function);
	free(reading->slots.is_read);
}

void cubin_add_statics(struct statics *statics, const uint8_t *image, size_t bytes)
{
	struct statics own = {0};
	struct reading reading = {.statics = &own, .work = bytes * WORK_FACTOR};

	if (elf_open(image, bytes, &reading.elf))
		read_cubin(&reading);
	else
		statics_add_more(&own, NOT_UNDERSTOOD);
	statics_merge(statics, &own);
	statics_deinit(&own);
}
