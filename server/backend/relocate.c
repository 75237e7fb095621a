// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See relocate.h. A variable of a cubin is a symbol of .nv.global.init or .nv.global. Whoever needs its
// address has a relocation: code reads it from the table of addresses .nv.constant4, or has it in its
// instructions where it was linked from parts; other variables may begin with it. So a variable is moved by
// doing what the driver would do with these relocations, with another address, and leaving them out of the
// file: then its place in the context is nobody's.
//
// That is right only if all its relocations are understood. It stays where it is if one of them is of an
// unknown kind; if there are relocations that name its section instead of it; if it
// begins with the address of something that stays, a function for example; if another symbol shares its name
// or its place; if anything marks it as special (managed memory).
//
// A constant is a symbol of .nv.constant3. Code needs no address to read it, but other variables may begin
// with its address, and get that of the mirror then. Code that has the address of the constants' bank
// (sass.h) could tell a constant from its mirror, or keep an address that the next context does not have:
// constants of such an image stay, and so does one that begins with what stays, or that relocations of code
// name.
//
// Formats are those of nvcc 11 to 13; up to devices 9.x. The second form of a program that cubins have from
// devices 10.0 on has relocations of its own, which are none of those above: nothing is moved there.

#include "server/backend/relocate.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/elf.h"
#include "server/backend/image.h"
#include "server/backend/sass.h"

/* 64-bit addresses, of which the second kind is a generic one: the same here. */
#define R_ADDRESS 2u
#define R_GENERIC 4u
/* Its lower and upper half, in the bits from 32 of an instruction of 128. */
#define R_LOWER	      56u
#define R_UPPER	      57u
#define ADDRESS_BYTES 8u
#define HALF_BYTES    4u
#define CODE_BYTES    16u /* of an instruction */

/* Bytes of tables that are looked at, for each byte of the file: tables may overlap. */
#define WORK_FACTOR   64u
#define VARIABLES_MAX 4096u
#define HEAD_BYTES    RELOCATE_ALIGNMENT

/* One that may be moved, by its place in the file. */
struct candidate {
	uint64_t section, value, bytes, alignment;
	uint64_t symbol;
	const char *name; /* in the image */
	bool is_constant;
	bool is_had; /* something has its address */
	bool stays;
};

struct relocation {
	uint64_t symbol, target, offset;
	uint32_t type;
	bool is_implicit; /* the addend was where the address goes */
	uint64_t addend;  /* modulo 2^64 */
};

struct reading {
	struct elf elf;
	Elf64_Shdr symbols, texts;
	uint64_t symbols_at, symbol_count;
	struct candidate *candidates;
	uint64_t count;
	uint64_t work, names; /* that may still be done, bytes; that names may have */
	bool is_wrong;
	bool has_changed; /* another one stays since this was false */
};

typedef void visit_relocation(struct reading *reading, const struct relocation *one, void *context);

static bool spend(struct reading *reading, uint64_t bytes)
{
	if (bytes > reading->work)
		reading->is_wrong = true;
	else
		reading->work -= bytes;
	return !reading->is_wrong;
}

/* ---- what may be moved ---- */

static bool open_symbols(struct reading *reading)
{
	const struct elf *elf = &reading->elf;

	for (uint64_t i = 1; i < elf->count; i++) {
		Elf64_Shdr section = elf_section(elf, i);

		/* More sections than a symbol can name; a second form of the program. */
		if (section.sh_type == SHT_SYMTAB_SHNDX || elf_section_begins(elf, &section, ".nv.merc") ||
			elf_section_begins(elf, &section, ".nv.capmerc"))
			return false;
		if (section.sh_type != SHT_SYMTAB)
			continue;
		if (reading->symbols_at || section.sh_entsize != sizeof(Elf64_Sym) ||
			section.sh_link >= elf->count)
			return false;
		reading->symbols_at = i;
		reading->symbols = section;
		reading->texts = elf_section(elf, section.sh_link);
		reading->symbol_count = section.sh_size / sizeof(Elf64_Sym);
	}
	return reading->symbol_count > 0;
}

static Elf64_Sym symbol_of(const struct reading *reading, uint64_t index)
{
	return elf_symbol(&reading->elf, &reading->symbols, index);
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

/* As its place has it. */
static uint64_t alignment_of(const Elf64_Shdr *section, uint64_t value)
{
	uint64_t most = section->sh_addralign ? section->sh_addralign : 1,
		 own = value ? value & -value : most;

	return own < most ? own : most;
}

static bool is_candidate(const struct reading *reading, uint64_t index, struct candidate *ret)
{
	const struct elf *elf = &reading->elf;
	Elf64_Sym symbol = symbol_of(reading, index);
	Elf64_Shdr section;

	if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_other || !symbol.st_size ||
		symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= SHN_LORESERVE ||
		symbol.st_shndx >= elf->count)
		return false;
	section = elf_section(elf, symbol.st_shndx);
	if (!is_moved_whole(elf, &section) || symbol.st_value > section.sh_size ||
		symbol.st_size > section.sh_size - symbol.st_value ||
		elf_is_literal(elf, &reading->texts, &section, &symbol))
		return false;
	*ret = (struct candidate){
		.section = symbol.st_shndx,
		.value = symbol.st_value,
		.bytes = symbol.st_size,
		.alignment = alignment_of(&section, symbol.st_value),
		.symbol = index,
		.name = elf_text(elf, &reading->texts, symbol.st_name),
		.is_constant = holds_constants(elf, &section),
	};
	return ret->name && *ret->name;
}

static int by_place(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	if (left->section != right->section)
		return left->section < right->section ? -1 : 1;
	if (left->value != right->value)
		return left->value < right->value ? -1 : 1;
	return left->symbol < right->symbol ? -1 : 1;
}

static void keep(struct reading *reading, struct candidate *candidate)
{
	reading->has_changed |= !candidate->stays;
	candidate->stays = true;
}

static void keep_all(struct reading *reading, uint64_t section)
{
	for (uint64_t i = 0; i < reading->count; i++)
		if (reading->candidates[i].section == section)
			keep(reading, &reading->candidates[i]);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct candidate *const *)a)->name, (*(struct candidate *const *)b)->name);
}

/* No two of one name. */
static void keep_doubles(struct reading *reading)
{
	struct candidate **names = calloc(reading->count + 1, sizeof(struct candidate *));

	if (!names) {
		reading->is_wrong = true;
		return;
	}
	for (uint64_t i = 0; i < reading->count; i++)
		names[i] = &reading->candidates[i];
	qsort(names, reading->count, sizeof(struct candidate *), by_name);
	for (uint64_t i = 1; i < reading->count; i++) {
		if (strcmp(names[i - 1]->name, names[i]->name) != 0)
			continue;
		keep(reading, names[i - 1]);
		keep(reading, names[i]);
	}
	free(names);
}

/* No two that share a byte; those that want more than a block has. */
static void keep_unfit(struct reading *reading)
{
	for (uint64_t i = 0; i < reading->count; i++) {
		struct candidate *one = &reading->candidates[i], *before = i ? one - 1 : one;

		if (one->alignment > RELOCATE_ALIGNMENT)
			keep(reading, one);
		if (!i || before->section != one->section || before->value + before->bytes <= one->value)
			continue;
		/* What the longer one covers behind this one is covered by both. */
		if (before->value + before->bytes > one->value + one->bytes)
			one->bytes = before->value + before->bytes - one->value;
		keep(reading, before);
		keep(reading, one);
	}
}

/* Names may overlap. */
static bool pay_for_name(struct reading *reading, const char *name)
{
	uint64_t bytes = strlen(name) + 1;

	reading->is_wrong |= bytes > reading->names;
	reading->names -= reading->is_wrong ? 0 : bytes;
	return !reading->is_wrong;
}

static bool code_may_know_constants(struct reading *reading)
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

static void keep_known_constants(struct reading *reading)
{
	bool has_constants = false;

	for (uint64_t i = 0; i < reading->count; i++)
		has_constants |= reading->candidates[i].is_constant;
	if (!has_constants || !code_may_know_constants(reading))
		return;
	for (uint64_t i = 0; i < reading->count; i++)
		if (reading->candidates[i].is_constant)
			keep(reading, &reading->candidates[i]);
}

static void find_candidates(struct reading *reading)
{
	struct candidate one;

	if (!spend(reading, reading->symbols.sh_size))
		return;
	reading->candidates = calloc(reading->symbol_count, sizeof(one));
	if (!reading->candidates) {
		reading->is_wrong = true;
		return;
	}
	for (uint64_t i = 1; !reading->is_wrong && i < reading->symbol_count; i++)
		if (is_candidate(reading, i, &one) && pay_for_name(reading, one.name))
			reading->candidates[reading->count++] = one;
	if (reading->count)
		qsort(reading->candidates, reading->count, sizeof(one), by_place);
	keep_doubles(reading);
	keep_unfit(reading);
	keep_known_constants(reading);
}

/* The last one that begins at or before a place; NULL: none does, or it ends before. */
static struct candidate *candidate_at(struct reading *reading, uint64_t section, uint64_t offset)
{
	uint64_t low = 0, high = reading->count;
	struct candidate *found;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		const struct candidate *one = &reading->candidates[middle];

		if (one->section < section || (one->section == section && one->value <= offset))
			low = middle + 1;
		else
			high = middle;
	}
	found = low ? &reading->candidates[low - 1] : NULL;
	return found && found->section == section && offset - found->value < found->bytes ? found : NULL;
}

static struct candidate *candidate_of(struct reading *reading, uint64_t symbol)
{
	Elf64_Sym wanted = symbol_of(reading, symbol);
	struct candidate *found = candidate_at(reading, wanted.st_shndx, wanted.st_value);

	/* Others in this place stay. */
	return found && found->symbol == symbol ? found : NULL;
}

/* ---- relocations ---- */

static bool read_relocation(
	const struct reading *reading, const Elf64_Shdr *section, uint64_t index, struct relocation *ret)
{
	const struct elf *elf = &reading->elf;
	Elf64_Rela one = {0};
	Elf64_Shdr target;
	uint64_t at = section->sh_offset + index * section->sh_entsize;

	memcpy(&one, elf->image + at, section->sh_entsize);
	*ret = (struct relocation){
		.symbol = ELF64_R_SYM(one.r_info),
		.type = (uint32_t)ELF64_R_TYPE(one.r_info),
		.target = section->sh_info,
		.offset = one.r_offset,
		.is_implicit = section->sh_entsize == sizeof(Elf64_Rel),
		.addend = (uint64_t)one.r_addend,
	};
	if (ret->symbol >= reading->symbol_count || ret->target >= elf->count)
		return false;
	target = elf_section(elf, ret->target);
	if (ret->is_implicit && target.sh_type == SHT_PROGBITS && target.sh_size >= ADDRESS_BYTES &&
		ret->offset <= target.sh_size - ADDRESS_BYTES)
		memcpy(&ret->addend, elf->image + target.sh_offset + ret->offset, ADDRESS_BYTES);
	return true;
}

static void visit_section(
	struct reading *reading, const Elf64_Shdr *section, visit_relocation *visit, void *context)
{
	struct relocation one;

	if ((section->sh_entsize != sizeof(Elf64_Rel) && section->sh_entsize != sizeof(Elf64_Rela)) ||
		section->sh_link != reading->symbols_at || section->sh_type == SHT_NOBITS)
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

static void visit_all(struct reading *reading, visit_relocation *visit, void *context)
{
	for (uint64_t i = 1; !reading->is_wrong && i < reading->elf.count; i++) {
		Elf64_Shdr section = elf_section(&reading->elf, i);

		if (elf_relocates(&reading->elf, &section))
			visit_section(reading, &section, visit, context);
	}
}

/* An instruction that takes half of it. */
static bool is_in_code(const struct reading *reading, const struct relocation *one, const Elf64_Shdr *target)
{
	uint32_t now;

	if (!(target->sh_flags & SHF_EXECINSTR) || one->is_implicit || one->offset % CODE_BYTES ||
		one->offset > target->sh_size || target->sh_size - one->offset < CODE_BYTES)
		return false;
	memcpy(&now, reading->elf.image + target->sh_offset + one->offset + HALF_BYTES, sizeof(now));
	return now == 0;
}

/* Whether we can put the address there. */
static bool is_ours_to_do(
	const struct reading *reading, const struct relocation *one, const struct candidate *named)
{
	Elf64_Shdr target = elf_section(&reading->elf, one->target);

	if (target.sh_type != SHT_PROGBITS)
		return false;
	/* What code has of a constant may be its place in the bank. */
	if (one->type == R_LOWER || one->type == R_UPPER)
		return !named->is_constant && is_in_code(reading, one, &target);
	return (one->type == R_ADDRESS || one->type == R_GENERIC) &&
	       (elf_section_is(&reading->elf, &target, ELF_SLOTS) ||
		       is_moved_whole(&reading->elf, &target)) &&
	       target.sh_size >= ADDRESS_BYTES && one->offset <= target.sh_size - ADDRESS_BYTES;
}

/* visit_relocation */
static void judge(struct reading *reading, const struct relocation *one, void *unused)
{
	struct candidate *named = candidate_of(reading, one->symbol),
			 *begins_with = candidate_at(reading, one->target, one->offset);
	Elf64_Sym symbol = symbol_of(reading, one->symbol);

	(void)unused;
	if (ELF64_ST_TYPE(symbol.st_info) == STT_SECTION && symbol.st_shndx && spend(reading, reading->count))
		keep_all(reading, symbol.st_shndx);
	if (named) {
		named->is_had = true;
		if (!is_ours_to_do(reading, one, named))
			keep(reading, named);
	}
	if (begins_with && (!named || named->stays ||
				   begins_with->bytes - (one->offset - begins_with->value) < ADDRESS_BYTES))
		keep(reading, begins_with);
}

/* One that stays may make others stay. */
static void settle(struct reading *reading)
{
	do {
		reading->has_changed = false;
		visit_all(reading, judge, NULL);
	} while (!reading->is_wrong && reading->has_changed);
	/* Objects of empty classes, which nearly every module of a C++ library has. */
	for (uint64_t i = 0; i < reading->count; i++) {
		struct candidate *one = &reading->candidates[i];

		one->stays |= one->bytes == 1 && !one->is_had && !one->is_constant;
	}
}

/* Return: whether anything may be moved. Ends with close_reading(). */
static bool open_reading(struct reading *reading, const uint8_t *cubin, size_t bytes)
{
	*reading = (struct reading){.work = (uint64_t)bytes * WORK_FACTOR, .names = bytes};
	if (!elf_open(cubin, bytes, &reading->elf) || !sass_is_known(image_architecture(cubin)) ||
		!open_symbols(reading))
		return false;
	find_candidates(reading);
	if (!reading->is_wrong && reading->count)
		settle(reading);
	if (reading->is_wrong)
		reading->count = 0;
	return reading->count > 0;
}

static void close_reading(struct reading *reading)
{
	free(reading->candidates);
}

/* ---- the plan ---- */

static int compare(const void *a, const void *b)
{
	return strcmp(
		((const struct relocate_variable *)a)->name, ((const struct relocate_variable *)b)->name);
}

/* @count: of the first variables, which are in order */
static struct relocate_variable *find_among(
	const struct relocate_plan *plan, uint32_t count, const char *name)
{
	const struct relocate_variable wanted = {.name = (char *)(uintptr_t)name};

	return count ? bsearch(&wanted, plan->at, count, sizeof(wanted), compare) : NULL;
}

static struct relocate_variable *find(const struct relocate_plan *plan, const char *name)
{
	return find_among(plan, plan->count, name);
}

const struct relocate_variable *relocate_find(const struct relocate_plan *plan, const char *name)
{
	return plan->is_abandoned || !plan->bytes ? NULL : find(plan, name);
}

static void abandon(struct relocate_plan *plan)
{
	plan->is_abandoned = true;
	plan->bytes = 0;
}

/* @before: how many there were of other cubins. The names of one are all different. */
static void add(struct relocate_plan *plan, uint32_t before, const struct candidate *one)
{
	struct relocate_variable *same = find_among(plan, before, one->name), *grown;

	if (same) {
		if (same->bytes != one->bytes || same->is_constant != one->is_constant)
			abandon(plan);
		same->alignment = same->alignment > one->alignment ? same->alignment : one->alignment;
		return;
	}
	if (plan->count == plan->room) {
		plan->room = plan->room ? 2 * plan->room : 16;
		grown = realloc(plan->at, plan->room * sizeof(*grown));
		if (!grown)
			abandon(plan);
		else
			plan->at = grown;
	}
	if (plan->count == VARIABLES_MAX)
		abandon(plan);
	if (plan->is_abandoned)
		return;
	plan->at[plan->count] = (struct relocate_variable){.name = strdup(one->name),
		.bytes = one->bytes,
		.alignment = one->alignment,
		.is_constant = one->is_constant};
	if (!plan->at[plan->count].name)
		abandon(plan);
	else
		plan->count++;
}

void relocate_look(struct relocate_plan *plan, const uint8_t *cubin, size_t bytes)
{
	struct reading reading;
	uint32_t before = plan->count;

	if (open_reading(&reading, cubin, bytes))
		for (uint64_t i = 0; !plan->is_abandoned && i < reading.count; i++)
			if (!reading.candidates[i].stays)
				add(plan, before, &reading.candidates[i]);
	if (plan->count > before)
		qsort(plan->at, plan->count, sizeof(plan->at[0]), compare);
	close_reading(&reading);
}

void relocate_lay_out(struct relocate_plan *plan)
{
	uint64_t end = HEAD_BYTES;

	if (plan->is_abandoned || !plan->count)
		return;
	for (uint32_t i = 0; i < plan->count && end < RELOCATE_BLOCK_MAX; i++) {
		struct relocate_variable *one = &plan->at[i];

		one->offset = (end + one->alignment - 1) & ~(one->alignment - 1);
		end = one->bytes < RELOCATE_BLOCK_MAX ? one->offset + one->bytes : RELOCATE_BLOCK_MAX;
	}
	if (end < RELOCATE_BLOCK_MAX)
		plan->bytes = end;
	else
		abandon(plan);
}

void relocate_deinit(struct relocate_plan *plan)
{
	for (uint32_t i = 0; i < plan->count; i++)
		free(plan->at[i].name);
	free(plan->at);
	free(plan->first);
	*plan = (struct relocate_plan){0};
}

/* ---- moving ---- */

struct move {
	struct relocate_plan *plan;
	uint64_t at;
	uint8_t *cubin; /* the copy that is changed */
	bool is_split;	/* another cubin moves what this one cannot, or begins with something else */
	bool is_done;	/* something was moved */
};

static uint64_t address_of(const struct move *move, const struct candidate *one)
{
	const struct relocate_variable *variable = find(move->plan, one->name);

	return variable ? move->at + variable->offset : 0;
}

/* The file's first values, into which addresses have been put. */
static void fill(struct move *move, const struct reading *reading, const struct candidate *one)
{
	struct relocate_variable *variable = find(move->plan, one->name);
	Elf64_Shdr section = elf_section(&reading->elf, one->section);
	const uint8_t *from =
		section.sh_type == SHT_NOBITS ? NULL : move->cubin + section.sh_offset + one->value;
	uint8_t *to = move->plan->first + (variable ? variable->offset : 0);

	if (!variable)
		return;
	for (uint64_t i = 0; variable->is_filled && i < one->bytes && !move->is_split; i++)
		move->is_split = to[i] != (from ? from[i] : 0);
	if (from && !variable->is_filled)
		memcpy(to, from, one->bytes);
	variable->is_filled = true;
}

static void put_at(uint8_t *at, uint32_t type, uint64_t address)
{
	uint32_t half = (uint32_t)(type == R_UPPER ? address >> 32 : address);

	if (type == R_LOWER || type == R_UPPER)
		memcpy(at + HALF_BYTES, &half, sizeof(half));
	else
		memcpy(at, &address, sizeof(address));
}

/* visit_relocation: puts the address there. The driver's own relocations into the same bytes, of which there
 * are none in what compilers write, would come later. */
static void put(struct reading *reading, const struct relocation *one, void *context)
{
	const struct candidate *named = candidate_of(reading, one->symbol);
	Elf64_Shdr target = elf_section(&reading->elf, one->target);
	struct move *move = context;
	uint64_t address;

	if (!named || named->stays)
		return;
	address = address_of(move, named) + one->addend;
	put_at(move->cubin + target.sh_offset + one->offset, one->type, address);
	move->is_done = true;
}

/* Leaves those out that were done: the others move up, and the section gets shorter. */
static void shorten(struct reading *reading, struct move *move, uint64_t index)
{
	Elf64_Shdr section = elf_section(&reading->elf, index);
	uint64_t left = 0, count = section.sh_size / section.sh_entsize;
	uint8_t *table = move->cubin + section.sh_offset;
	const uint8_t *from = reading->elf.image + section.sh_offset;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t info;
		const struct candidate *named;

		memcpy(&info, from + i * section.sh_entsize + offsetof(Elf64_Rel, r_info), sizeof(info));
		named = candidate_of(reading, ELF64_R_SYM(info));
		if (!named || named->stays)
			memcpy(table + left++ * section.sh_entsize, from + i * section.sh_entsize,
				section.sh_entsize);
	}
	section.sh_size = left * section.sh_entsize;
	memcpy(move->cubin + reading->elf.header.e_shoff + index * sizeof(section), &section,
		sizeof(section));
}

static void leave_out(struct reading *reading, struct move *move)
{
	for (uint64_t i = 1; i < reading->elf.count; i++) {
		Elf64_Shdr section = elf_section(&reading->elf, i);

		if (elf_relocates(&reading->elf, &section))
			shorten(reading, move, i);
	}
}

/* What moves in one cubin must move in all. */
static bool is_split(const struct relocate_plan *plan, const struct reading *reading)
{
	uint32_t moves = 0;

	for (uint64_t i = 0; i < reading->count; i++)
		moves += !reading->candidates[i].stays && find(plan, reading->candidates[i].name);
	return moves != plan->count;
}

static void move_all(struct reading *reading, struct move *move)
{
	visit_all(reading, put, move);
	for (uint64_t i = 0; i < reading->count; i++)
		if (!reading->candidates[i].stays)
			fill(move, reading, &reading->candidates[i]);
	leave_out(reading, move);
}

CUresult relocate_move(
	struct relocate_plan *plan, uint64_t at, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	struct move move = {.plan = plan, .at = at};
	struct reading reading;
	CUresult code = CUDA_SUCCESS;

	if (!plan->first)
		plan->first = calloc(1, plan->bytes);
	if (!plan->first)
		return CUDA_ERROR_OUT_OF_MEMORY;
	open_reading(&reading, cubin, bytes);
	move.is_split = is_split(plan, &reading);
	move.cubin = move.is_split ? NULL : malloc(bytes);
	if (move.cubin) {
		memcpy(move.cubin, cubin, bytes);
		reading.work = (uint64_t)bytes * WORK_FACTOR;
		move_all(&reading, &move);
	} else if (!move.is_split) {
		code = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (move.is_split || reading.is_wrong)
		code = CUDA_ERROR_NOT_SUPPORTED;
	close_reading(&reading);
	if (!code && move.is_done)
		*ret = (struct fatbin_bytes){move.cubin, bytes};
	else
		free(move.cubin);
	return code;
}
