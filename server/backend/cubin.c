// See cubin.h. A cubin is an ELF file; variables are symbols of its writable sections,
// .nv.global.init and .nv.global. The file does not tell const variables, and nearly every module
// of a C++ library has some variables. So variables that kernels may have written count, and with
// them the kernels that may have done so:
//
//   - Code gets a variable's address from a relocation. If that is in its instructions, this code
//     has the address. If the relocation is in the table of addresses .nv.constant4, where
//     compilers put every variable, code that reads the place has the address (sass.h). If the
//     relocation is in anything else that is loaded, another variable for example, all code may
//     have the address. A variable whose address no code has is out of every kernel's reach (tag
//     objects of the C++ library are like that).
//   - Addresses of a function that is no kernel may reach every kernel.
//   - A string literal may not be written. The compiler calls them $str, $str$1, … and __unnamed_1,
//     …, and they contain a text of exactly their length. A very long literal counts as a variable.
//
// The banks of constants are not among the variables: kernels cannot write there, and a program
// must look up a constant before writing to it (executor/constant.c, executor/variable.c).
//
// A device's heap is a state as well, and so is any other state of the driver that a kernel uses:
// the functions are symbols that are not defined. Functions without a state are known by name.
//
// Nothing is guessed: two variables of one name, memory that relocations name by its section,
// tables that are not as expected. Such an image has "more" than is known.
//
// From devices 10.0 on the file contains a second form of the whole program, sections .nv.merc.*,
// with equal symbols and relocations of its own.
//
// Formats are those of nvcc 11 to 13. Pure functions on untrusted bytes that lie still; any thread.

#include "server/backend/cubin.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/elf.h"
#include "server/backend/image.h"
#include "server/backend/sass.h"

/* In st_other: a kernel. */
#define OTHER_ENTRY 0x10u
/* The section of its code has this name plus its own. */
#define CODE ".text."

#define NOT_UNDERSTOOD "its image is not understood"
#define NO_MEMORY      "there was no memory to look at its image"

/* Kernels that have the address may write there, or not. */
#define WRITTEN	    1u
#define NOT_WRITTEN 2u

/* The symbols, and the facts about them. */
struct symbols {
	struct elf_symbols all;
	Elf64_Shdr indices; /* of sections, for symbols with an extended section index */
	uint8_t *known;	    /* WRITTEN, NOT_WRITTEN; 0: not asked yet */
	bool *is_had;	    /* some code may have the address */
	bool *is_entry;	    /* by section: the code is a kernel's */
};

/* The table of addresses. */
struct slots {
	uint64_t index, count; /* of its section; of slots */
	uint64_t *symbols;     /* by slot, 0: none */
	bool *is_function, *is_read;
	uint64_t *read;	  /* those that the code reads */
	bool are_had;	  /* true if code that is not understood may read all slots */
	uint64_t written; /* the last of these that may be written, 0: none */
};

struct reading {
	struct elf elf;
	struct symbols symbols;
	struct slots slots;
	struct statics *statics;
	const char *wrong; /* NULL: nothing yet */
	uint64_t work;	   /* that may still be done, bytes */
	uint64_t names;	   /* remaining bytes for names */
	uint64_t noted;	   /* section of the code that was noted last */
};

/* Each byte of the file is looked at once. Compilers' sections do not overlap; with overlaps, a
 * small file would take for ever. */
static void spend(struct reading *reading, uint64_t bytes)
{
	if (bytes > reading->work)
		reading->wrong = NOT_UNDERSTOOD;
	else
		reading->work -= bytes;
}

/* Names may overlap, or be noted again and again, so that a small file has very many. NULL is
 * none. */
static bool pay_for_name(struct reading *reading, const char *name)
{
	uint64_t bytes = name ? strlen(name) + 1 : 0;

	if (!name || bytes > reading->names)
		return false;
	reading->names -= bytes;
	return true;
}

/* Memory of a block or a thread ends with it. */
static bool holds_variables(const struct elf *elf, const Elf64_Shdr *section)
{
	if (!section->sh_size || elf_section_begins(elf, section, ".nv.merc.") ||
		elf_section_begins(elf, section, ".nv.shared") ||
		elf_section_begins(elf, section, ".nv.local"))
		return false;
	return elf_section_begins(elf, section, ".nv.global") ||
	       ((section->sh_flags & SHF_ALLOC) && (section->sh_flags & SHF_WRITE));
}

/* ---- symbols ---- */

/* Return: NULL or the error. */
static const char *symbols_open(const struct elf *elf, struct symbols *symbols)
{
	/* Without symbols nobody knows the functions that code calls. */
	if (!elf_symbols_open(elf, &symbols->all))
		return NOT_UNDERSTOOD;
	for (uint64_t i = 1; i < elf->count; i++) {
		Elf64_Shdr section = elf_section(elf, i);

		if (section.sh_type == SHT_SYMTAB_SHNDX)
			symbols->indices = section;
	}
	symbols->known = calloc(symbols->all.count, sizeof(*symbols->known));
	symbols->is_had = calloc(symbols->all.count, sizeof(bool));
	symbols->is_entry = calloc(elf->count, sizeof(bool));
	return symbols->known && symbols->is_had && symbols->is_entry ? NULL : NO_MEMORY;
}

static Elf64_Sym symbol_at(const struct reading *reading, uint64_t index)
{
	return elf_symbol(&reading->elf, &reading->symbols.all.table, index);
}

/* NULL without an end. */
static const char *symbol_name(const struct reading *reading, const Elf64_Sym *symbol)
{
	return elf_text(&reading->elf, &reading->symbols.all.texts, symbol->st_name);
}

/* The section of a symbol. Return: the number of sections if there is none. */
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
	for (uint64_t i = 1; i < reading->symbols.all.count; i++) {
		Elf64_Sym symbol = symbol_at(reading, i);
		uint64_t section = section_index(reading, i, &symbol);

		if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && (symbol.st_other & OTHER_ENTRY) &&
			symbol.st_shndx != SHN_UNDEF && section < reading->elf.count)
			reading->symbols.is_entry[section] = true;
	}
}

/* ---- variables ---- */

static bool find_written(const struct reading *reading, uint64_t index)
{
	Elf64_Sym symbol = symbol_at(reading, index);
	uint64_t at = section_index(reading, index, &symbol);
	Elf64_Shdr section;

	if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS)
		return false;
	if (at == reading->elf.count)
		return true;
	section = elf_section(&reading->elf, at);
	return holds_variables(&reading->elf, &section) &&
	       !elf_is_literal(&reading->elf, &reading->symbols.all.texts, &section, &symbol);
}

/* If kernels that have a symbol's address may write there: asked of each relocation and each
 * slot that code reads, and found out once. */
static bool may_be_written(struct reading *reading, uint64_t index)
{
	uint8_t *known = &reading->symbols.known[index];

	if (!*known)
		*known = find_written(reading, index) ? WRITTEN : NOT_WRITTEN;
	return *known == WRITTEN;
}

/* ---- code that has their addresses ---- */

/* Code has the symbol's address. */
static void note_had_by(struct reading *reading, uint64_t symbol, uint64_t section)
{
	Elf64_Shdr code = elf_section(&reading->elf, section),
		   names = elf_section(&reading->elf, reading->elf.names);
	const char *name;

	if (!may_be_written(reading, symbol))
		return;
	reading->symbols.is_had[symbol] = true;
	if (reading->noted == section || reading->statics->every)
		return;
	reading->noted = section;
	name = reading->symbols.is_entry[section] && elf_section_begins(&reading->elf, &code, CODE)
		       ? elf_text(&reading->elf, &names, code.sh_name)
		       : NULL;
	if (pay_for_name(reading, name))
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
		target < reading->elf.count && (elf_section(&reading->elf, target).sh_flags & SHF_EXECINSTR);

	if (is_code)
		note_had_by(reading, symbol, target);
	else if (reading->slots.index && target == reading->slots.index)
		note_slot(reading, symbol, offset);
	else
		note_had_by_all(reading, symbol);
}

static void read_relocations(struct reading *reading, const Elf64_Shdr *section)
{
	/* Elf64_Rela begins like this. */
	Elf64_Rel one;

	if ((section->sh_entsize != sizeof(Elf64_Rel) && section->sh_entsize != sizeof(Elf64_Rela)) ||
		section->sh_link != reading->symbols.all.index || section->sh_type == SHT_NOBITS)
		reading->wrong = NOT_UNDERSTOOD;
	spend(reading, section->sh_size);
	for (uint64_t at = 0; !reading->wrong && section->sh_size - at >= section->sh_entsize;
		at += section->sh_entsize) {
		memcpy(&one, reading->elf.image + section->sh_offset + at, sizeof(one));
		if (ELF64_R_SYM(one.r_info) < reading->symbols.all.count)
			note_relocation(reading, ELF64_R_SYM(one.r_info), section->sh_info, one.r_offset);
		else
			reading->wrong = NOT_UNDERSTOOD;
	}
}

/* Return: NULL or the error. */
static const char *slots_open(const struct elf *elf, struct slots *slots)
{
	Elf64_Shdr names = elf_section(elf, elf->names);

	for (uint64_t i = 1; i < elf->count && !slots->index; i++) {
		Elf64_Shdr section = elf_section(elf, i);

		if (section.sh_type != SHT_PROGBITS ||
			!elf_text_begins(elf, &names, section.sh_name, ELF_SLOTS, sizeof(ELF_SLOTS)))
			continue;
		slots->index = i;
		slots->count = section.sh_size / SASS_SLOT_BYTES;
	}
	slots->symbols = calloc(slots->count + 1, sizeof(*slots->symbols));
	slots->is_function = calloc(slots->count + 1, sizeof(bool));
	slots->is_read = calloc(slots->count + 1, sizeof(bool));
	slots->read = calloc(slots->count + 1, sizeof(*slots->read));
	return slots->symbols && slots->is_function && slots->is_read && slots->read ? NULL : NO_MEMORY;
}

/* Code may have all addresses. Facts about every slot are not noted again for the next code. */
static void note_all_slots(struct reading *reading, uint64_t code)
{
	struct slots *slots = &reading->slots;

	if (slots->are_had && slots->written)
		note_had_by(reading, slots->written, code);
	for (uint64_t slot = 0; !slots->are_had && slot < slots->count; slot++) {
		if (!slots->symbols[slot])
			continue;
		note_had_by(reading, slots->symbols[slot], code);
		if (may_be_written(reading, slots->symbols[slot]))
			slots->written = slots->symbols[slot];
	}
	slots->are_had = true;
}

/* Notes the slots that some code reads; all slots, if that code is not understood. */
static void read_code(struct reading *reading, uint64_t index, bool is_known)
{
	Elf64_Shdr section = elf_section(&reading->elf, index);
	struct slots *slots = &reading->slots;
	struct sass_table table = {slots->count, slots->is_function, slots->is_read, slots->read, 0};

	if (!(section.sh_flags & SHF_EXECINSTR) || section.sh_type == SHT_NOBITS || !slots->count)
		return;
	spend(reading, section.sh_size);
	if (reading->wrong)
		return;
	is_known =
		is_known && sass_note_reads(reading->elf.image + section.sh_offset, section.sh_size, &table);
	if (!is_known)
		note_all_slots(reading, index);
	for (uint64_t i = 0; i < table.read_count; i++) {
		slots->is_read[slots->read[i]] = false;
		if (slots->symbols[slots->read[i]])
			note_had_by(reading, slots->symbols[slots->read[i]], index);
	}
}

static void find_addresses(struct reading *reading)
{
	const struct elf *elf = &reading->elf;
	bool is_known = sass_is_known(image_architecture(elf->image));

	for (uint64_t i = 1; !reading->wrong && i < elf->count; i++) {
		Elf64_Shdr section = elf_section(elf, i);

		if (elf_relocates(elf, &section))
			read_relocations(reading, &section);
	}
	for (uint64_t i = 1; !reading->wrong && i < elf->count; i++)
		read_code(reading, i, is_known);
}

/* ---- result ---- */

/* Functions of the driver that leave nothing behind. */
static bool is_harmless(const char *name)
{
	return !strcmp(name, "vprintf") || !strcmp(name, "__assertfail") ||
	       !strcmp(name, "cudaGraphSetConditional");
}

/* The device runtime of CUDA 12 and later calls this function to launch a kernel. */
#define NESTED_LAUNCH "__cuda_syscall_cnp"

static void add_call(struct statics *statics, const char *name)
{
	statics->calls = true;
	statics->nests |= name && !strncmp(name, NESTED_LAUNCH, strlen(NESTED_LAUNCH));
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
	else if (!pay_for_name(reading, name))
		statics_add_more(reading->statics, "the names of its variables are too long");
	else
		statics_add(reading->statics, name, symbol->st_size);
}

static void add_symbol(struct reading *reading, uint64_t index)
{
	Elf64_Sym symbol = symbol_at(reading, index);

	/* A local symbol belongs to the file alone. */
	if (symbol.st_shndx == SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT &&
		ELF64_ST_BIND(symbol.st_info) != STB_LOCAL)
		add_call(reading->statics, symbol_name(reading, &symbol));
	else if (reading->symbols.is_had[index])
		add_variable(reading, index, &symbol);
}

/* Of one image: a name stands for a single variable. */
static void look_for_doubles(struct statics *statics)
{
	statics_sort(statics);
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
	/* The first symbol is empty. */
	for (uint64_t i = 1; !reading->wrong && !reading->statics->more && i < reading->symbols.all.count;
		i++)
		add_symbol(reading, i);
	if (reading->wrong)
		statics_add_more(reading->statics, reading->wrong);
	look_for_doubles(reading->statics);
	free(reading->symbols.known);
	free(reading->symbols.is_had);
	free(reading->symbols.is_entry);
	free(reading->slots.symbols);
	free(reading->slots.is_function);
	free(reading->slots.is_read);
	free(reading->slots.read);
}

void cubin_add_statics(struct statics *statics, const uint8_t *image, size_t bytes)
{
	struct statics own = {0};
	struct reading reading = {.statics = &own, .work = bytes, .names = bytes};

	if (elf_open(image, bytes, &reading.elf))
		read_cubin(&reading);
	else
		statics_add_more(&own, NOT_UNDERSTOOD);
	statics_merge(statics, &own);
	statics_deinit(&own);
}
