// See movable.h. A variable of a cubin is a symbol of .nv.global.init or .nv.global. Each user of
// its address has a relocation: code reads the address from the table .nv.constant4, or has the
// address in its instructions where the code was linked from parts; other variables may begin with
// the address. So moving a variable means: apply these relocations like the driver, with another
// address, and remove them from the file: then nobody uses the variable's place in the context.
//
// That is right only if all its relocations are understood. A variable stays in the context if any
// of its relocations is of an unknown kind; if relocations name its section instead; if the
// variable begins with the address of something that stays, a function for example; if another
// symbol shares its name or its place; if anything but "managed" marks the variable as special.
//
// Managed variables belong where the program can use them, and a module has one block: in an image
// with managed variables all others stay.
//
// A constant is a symbol of .nv.constant3. Code needs no address for reading a constant, but other
// variables may begin with its address, and get that of the mirror then. Code that has the address
// of the constants' bank (sass.h) could distinguish a constant from its mirror, or save an address
// that is invalid in the next context. So constants of such an image stay. A constant that begins
// with something that stays, or that relocations of code name, stays as well.
//
// Formats are those of nvcc 11 to 13; up to devices 9.x. From devices 10.0 on, cubins have a second
// form of the program with relocations of its own, which are none of those above: nothing is moved
// there.

#include "server/backend/movable.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/image.h"
#include "server/backend/relocate.h"
#include "server/backend/sass.h"
#include "server/grow.h"

#define ADDRESS_BYTES 8u
#define CODE_BYTES    16u /* of an instruction */
/* In st_other: a variable in managed memory. */
#define OTHER_MANAGED 4u

/* Each byte of the file is looked at once. Compilers' sections do not overlap; with overlaps, a
 * small file would take for ever. */
static bool spend(struct movable_reading *reading, uint64_t bytes)
{
	if (bytes > reading->work)
		reading->is_wrong = true;
	else
		reading->work -= bytes;
	return !reading->is_wrong;
}

/* ---- variables ---- */

static bool open_symbols(struct movable_reading *reading)
{
	const struct elf *elf = &reading->elf;

	for (uint64_t i = 1; i < elf->count; i++) {
		Elf64_Shdr section = elf_section(elf, i);

		/* More sections than a symbol can name; a second form of the program. */
		if (section.sh_type == SHT_SYMTAB_SHNDX || elf_section_begins(elf, &section, ".nv.merc") ||
			elf_section_begins(elf, &section, ".nv.capmerc"))
			return false;
	}
	return elf_symbols_open(elf, &reading->symbols);
}

static Elf64_Sym symbol_of(const struct movable_reading *reading, uint64_t index)
{
	return elf_symbol(&reading->elf, &reading->symbols.table, index);
}

static bool holds_variables(const struct elf *elf, const Elf64_Shdr *section)
{
	return (section->sh_type == SHT_NOBITS && elf_section_is(elf, section, ".nv.global")) ||
	       (section->sh_type == SHT_PROGBITS && elf_section_is(elf, section, ".nv.global.init"));
}

static bool holds_constants(const struct elf *elf, const Elf64_Shdr *section)
{
	return section->sh_type == SHT_PROGBITS && elf_section_is(elf, section, ELF_CONSTANTS);
}

static bool is_moved_whole(const struct elf *elf, const Elf64_Shdr *section)
{
	return holds_variables(elf, section) || holds_constants(elf, section);
}

/* From its place. */
static uint64_t alignment_of(const Elf64_Shdr *section, uint64_t value)
{
	uint64_t most = section->sh_addralign ? section->sh_addralign : 1,
		 own = value ? value & -value : most;

	return own < most ? own : most;
}

/* @ret: the name is NULL without an end */
static bool is_candidate(const struct movable_reading *reading, uint64_t index, struct movable *ret)
{
	const struct elf *elf = &reading->elf;
	Elf64_Sym symbol = symbol_of(reading, index);
	Elf64_Shdr section;

	if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || (symbol.st_other & ~OTHER_MANAGED) ||
		!symbol.st_size || symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= SHN_LORESERVE ||
		symbol.st_shndx >= elf->count)
		return false;
	section = elf_section(elf, symbol.st_shndx);
	if ((symbol.st_other && !holds_variables(elf, &section)) || !is_moved_whole(elf, &section) ||
		symbol.st_value > section.sh_size || symbol.st_size > section.sh_size - symbol.st_value ||
		elf_is_literal(elf, &reading->symbols.texts, &section, &symbol))
		return false;
	*ret = (struct movable){
		.section = symbol.st_shndx,
		.value = symbol.st_value,
		.bytes = symbol.st_size,
		.alignment = alignment_of(&section, symbol.st_value),
		.symbol = index,
		.name = elf_text(elf, &reading->symbols.texts, symbol.st_name),
		.is_constant = holds_constants(elf, &section),
		.is_managed = symbol.st_other & OTHER_MANAGED,
	};
	return !ret->name || *ret->name;
}

static int by_place(const void *a, const void *b)
{
	const struct movable *left = a, *right = b;

	if (left->section != right->section)
		return left->section < right->section ? -1 : 1;
	if (left->value != right->value)
		return left->value < right->value ? -1 : 1;
	return left->symbol < right->symbol ? -1 : 1;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct movable *const *)a)->name, (*(struct movable *const *)b)->name);
}

/* Keeps variables with the same name in place. */
static void keep_doubles(struct movable_reading *reading)
{
	struct movable **names = calloc(reading->count + 1, sizeof(struct movable *));

	if (!names) {
		reading->is_wrong = true;
		return;
	}
	for (uint64_t i = 0; i < reading->count; i++)
		names[i] = &reading->candidates[i];
	qsort(names, reading->count, sizeof(struct movable *), by_name);
	for (uint64_t i = 1; i < reading->count; i++) {
		if (strcmp(names[i - 1]->name, names[i]->name) != 0)
			continue;
		names[i - 1]->stays = true;
		names[i]->stays = true;
	}
	free(names);
}

/* No two that share a byte; those that want more than a block has. */
static void keep_unfit(struct movable_reading *reading)
{
	for (uint64_t i = 0; i < reading->count; i++) {
		struct movable *one = &reading->candidates[i], *before = i ? one - 1 : one;

		if (one->alignment > RELOCATE_ALIGNMENT)
			one->stays = true;
		if (!i || before->section != one->section || before->value + before->bytes <= one->value)
			continue;
		/* The longer symbol covers a further symbol as well as this one does. */
		if (before->value + before->bytes > one->value + one->bytes)
			one->bytes = before->value + before->bytes - one->value;
		before->stays = true;
		one->stays = true;
	}
}

/* The last candidate that begins at or before a place; NULL: none, or the candidate ends before. */
static struct movable *candidate_at(struct movable_reading *reading, uint64_t section, uint64_t offset)
{
	uint64_t low = 0, high = reading->count;
	struct movable *found;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		const struct movable *one = &reading->candidates[middle];

		if (one->section < section || (one->section == section && one->value <= offset))
			low = middle + 1;
		else
			high = middle;
	}
	found = low ? &reading->candidates[low - 1] : NULL;
	return found && found->section == section && offset - found->value < found->bytes ? found : NULL;
}

/* Keeps candidates in place that other symbols lead into: code, or the program, may use such a
 * variable by the other name. */
static void keep_shared(struct movable_reading *reading)
{
	for (uint64_t i = 1; i < reading->symbols.count; i++) {
		Elf64_Sym symbol = symbol_of(reading, i);
		struct movable *there = candidate_at(reading, symbol.st_shndx, symbol.st_value);

		if (there && there->symbol != i && ELF64_ST_TYPE(symbol.st_info) != STT_SECTION)
			there->stays = true;
	}
}

/* Names may overlap. A name without an end could be searched again and again. */
static bool pay_for_name(struct movable_reading *reading, const char *name)
{
	uint64_t bytes = name ? strlen(name) + 1 : 0;

	reading->is_wrong |= !name || bytes > reading->names;
	reading->names -= reading->is_wrong ? 0 : bytes;
	return !reading->is_wrong;
}

static bool code_may_know_constants(struct movable_reading *reading)
{
	const struct elf *elf = &reading->elf;
	bool may = false;

	for (uint64_t i = 1; !may && !reading->is_wrong && i < elf->count; i++) {
		Elf64_Shdr section = elf_section(elf, i);

		if ((section.sh_flags & SHF_EXECINSTR) && section.sh_type != SHT_NOBITS &&
			spend(reading, section.sh_size))
			may = sass_may_know_constants(image_architecture(elf->image),
				elf->image + section.sh_offset, section.sh_size);
	}
	return may;
}

static void keep_known_constants(struct movable_reading *reading)
{
	bool has_constants = false;

	for (uint64_t i = 0; i < reading->count; i++)
		has_constants |= reading->candidates[i].is_constant;
	if (!has_constants || !code_may_know_constants(reading))
		return;
	for (uint64_t i = 0; i < reading->count; i++)
		if (reading->candidates[i].is_constant)
			reading->candidates[i].stays = true;
}

static void keep_beside_managed(struct movable_reading *reading)
{
	bool any = false;

	for (uint64_t i = 0; i < reading->count; i++)
		any |= reading->candidates[i].is_managed;
	for (uint64_t i = 0; any && i < reading->count; i++)
		reading->candidates[i].stays |= !reading->candidates[i].is_managed;
}

static void find_candidates(struct movable_reading *reading)
{
	struct movable one;

	if (!spend(reading, reading->symbols.table.sh_size))
		return;
	reading->candidates = calloc(reading->symbols.count, sizeof(one));
	if (!reading->candidates) {
		reading->is_wrong = true;
		return;
	}
	for (uint64_t i = 1; !reading->is_wrong && i < reading->symbols.count; i++)
		if (is_candidate(reading, i, &one) && pay_for_name(reading, one.name))
			reading->candidates[reading->count++] = one;
	if (reading->count)
		qsort(reading->candidates, reading->count, sizeof(one), by_place);
	keep_doubles(reading);
	keep_unfit(reading);
	keep_shared(reading);
	keep_known_constants(reading);
	keep_beside_managed(reading);
}

struct movable *movable_of(struct movable_reading *reading, uint64_t symbol)
{
	Elf64_Sym wanted = symbol_of(reading, symbol);
	struct movable *found = candidate_at(reading, wanted.st_shndx, wanted.st_value);

	/* Others in this place stay. */
	return found && found->symbol == symbol ? found : NULL;
}

/* ---- relocations ---- */

static bool read_relocation(const struct movable_reading *reading, const Elf64_Shdr *section, uint64_t index,
	struct movable_relocation *ret)
{
	const struct elf *elf = &reading->elf;
	Elf64_Rela one = {0};
	Elf64_Shdr target;
	uint64_t at = section->sh_offset + index * section->sh_entsize;

	memcpy(&one, elf->image + at, section->sh_entsize);
	*ret = (struct movable_relocation){
		.symbol = ELF64_R_SYM(one.r_info),
		.type = (uint32_t)ELF64_R_TYPE(one.r_info),
		.target = section->sh_info,
		.offset = one.r_offset,
		.is_implicit = section->sh_entsize == sizeof(Elf64_Rel),
		.addend = (uint64_t)one.r_addend,
	};
	if (ret->symbol >= reading->symbols.count || ret->target >= elf->count)
		return false;
	target = elf_section(elf, ret->target);
	if (ret->is_implicit && target.sh_type == SHT_PROGBITS && target.sh_size >= ADDRESS_BYTES &&
		ret->offset <= target.sh_size - ADDRESS_BYTES)
		memcpy(&ret->addend, elf->image + target.sh_offset + ret->offset, ADDRESS_BYTES);
	return true;
}

static void visit_section(
	struct movable_reading *reading, const Elf64_Shdr *section, movable_visit_fn *visit, void *context)
{
	struct movable_relocation one;

	if ((section->sh_entsize != sizeof(Elf64_Rel) && section->sh_entsize != sizeof(Elf64_Rela)) ||
		section->sh_link != reading->symbols.index || section->sh_type == SHT_NOBITS)
		reading->is_wrong = true;
	if (reading->is_wrong || !spend(reading, section->sh_size))
		return;
	for (uint64_t i = 0; !reading->is_wrong && i < section->sh_size / section->sh_entsize; i++) {
		if (read_relocation(reading, section, i, &one))
			visit(reading, &one, context);
		else
			reading->is_wrong = true;
	}
}

void movable_visit(struct movable_reading *reading, movable_visit_fn *visit, void *context)
{
	for (uint64_t i = 1; !reading->is_wrong && i < reading->elf.count; i++) {
		Elf64_Shdr section = elf_section(&reading->elf, i);

		if (elf_relocates(&reading->elf, &section))
			visit_section(reading, &section, visit, context);
	}
}

/* An instruction with half of the address. */
static bool is_in_code(
	const struct movable_reading *reading, const struct movable_relocation *one, const Elf64_Shdr *target)
{
	uint32_t now;

	if (!(target->sh_flags & SHF_EXECINSTR) || one->is_implicit || one->offset % CODE_BYTES ||
		one->offset > target->sh_size || target->sh_size - one->offset < CODE_BYTES)
		return false;
	memcpy(&now, reading->elf.image + target->sh_offset + one->offset + MOVABLE_HALF_BYTES, sizeof(now));
	return now == 0;
}

/* True if we can put the address there. */
static bool is_ours_to_do(const struct movable_reading *reading, const struct movable_relocation *one,
	const struct movable *named)
{
	Elf64_Shdr target = elf_section(&reading->elf, one->target);

	if (target.sh_type != SHT_PROGBITS)
		return false;
	/* Code may use the constant's place in the bank. */
	if (one->type == MOVABLE_LOWER || one->type == MOVABLE_UPPER)
		return !named->is_constant && is_in_code(reading, one, &target);
	return (one->type == MOVABLE_ADDRESS || one->type == MOVABLE_GENERIC) &&
	       (elf_section_is(&reading->elf, &target, ELF_SLOTS) ||
		       is_moved_whole(&reading->elf, &target)) &&
	       target.sh_size >= ADDRESS_BYTES && one->offset <= target.sh_size - ADDRESS_BYTES;
}

static void note_beginning(struct movable_reading *reading, struct movable *who, struct movable *named)
{
	if (!grow(&reading->beginnings, reading->beginning_count, &reading->room,
		    sizeof(*reading->beginnings))) {
		reading->is_wrong = true;
		return;
	}
	reading->beginnings[reading->beginning_count++] = (struct movable_beginning){who, named->beginnings};
	named->beginnings = reading->beginning_count;
}

/* movable_visit_fn */
static void judge(struct movable_reading *reading, const struct movable_relocation *one, void *unused)
{
	struct movable *named = movable_of(reading, one->symbol),
		       *begins_with = candidate_at(reading, one->target, one->offset);
	Elf64_Sym symbol = symbol_of(reading, one->symbol);

	(void)unused;
	if (ELF64_ST_TYPE(symbol.st_info) == STT_SECTION && symbol.st_shndx < reading->elf.count)
		reading->is_named_whole[symbol.st_shndx] = true;
	if (named) {
		named->is_had = true;
		named->stays |= !is_ours_to_do(reading, one, named);
	}
	if (!begins_with)
		return;
	begins_with->stays |=
		!named || begins_with->bytes - (one->offset - begins_with->value) < ADDRESS_BYTES;
	if (named)
		note_beginning(reading, begins_with, named);
}

/* A variable that begins with the address of another that stays, stays. Each is visited once. */
static void spread(struct movable_reading *reading)
{
	struct movable **staying = calloc(reading->count + 1, sizeof(struct movable *));
	uint64_t count = 0;

	reading->is_wrong |= !staying;
	for (uint64_t i = 0; staying && i < reading->count; i++)
		if (reading->candidates[i].stays)
			staying[count++] = &reading->candidates[i];
	while (count) {
		uint64_t next = staying[--count]->beginnings;

		while (next) {
			const struct movable_beginning *beginning = &reading->beginnings[next - 1];

			if (!beginning->who->stays)
				staying[count++] = beginning->who;
			beginning->who->stays = true;
			next = beginning->before;
		}
	}
	free(staying);
}

static void settle(struct movable_reading *reading)
{
	reading->is_named_whole = calloc(reading->elf.count, sizeof(bool));
	reading->is_wrong |= !reading->is_named_whole;
	movable_visit(reading, judge, NULL);
	for (uint64_t i = 0; !reading->is_wrong && i < reading->count; i++)
		reading->candidates[i].stays |= reading->is_named_whole[reading->candidates[i].section];
	if (!reading->is_wrong)
		spread(reading);
	free(reading->is_named_whole);
	free(reading->beginnings);
	/* Objects of empty classes, which nearly every module of a C++ library has. */
	for (uint64_t i = 0; i < reading->count; i++) {
		struct movable *one = &reading->candidates[i];

		one->stays |= one->bytes == 1 && !one->is_had && !one->is_constant;
	}
}

bool movable_open(struct movable_reading *reading, const uint8_t *cubin, size_t bytes)
{
	*reading = (struct movable_reading){.work = bytes, .names = bytes};
	if (!elf_open(cubin, bytes, &reading->elf) || !sass_is_known(image_architecture(cubin)) ||
		!open_symbols(reading))
		return false;
	find_candidates(reading);
	if (!reading->is_wrong && reading->count)
		settle(reading);
	if (reading->is_wrong)
		reading->count = 0;
	/* The next pass may look at everything once more. */
	reading->work = bytes;
	return reading->count > 0;
}

void movable_close(struct movable_reading *reading)
{
	free(reading->candidates);
}
