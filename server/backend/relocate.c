// See relocate.h. movable.c decides what may be moved, and explains why; this file decides the
// destination, and makes the cubin that uses it.

#include "server/backend/relocate.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/movable.h"
#include "server/grow.h"

#define VARIABLES_MAX 4096u
#define HEAD_BYTES    RELOCATE_ALIGNMENT

/* ---- the plan ---- */

/* Finds the first variable whose name is not below this name: the variable itself, or the place for
 * it. */
static uint32_t place_of(const struct relocate_plan *plan, const char *name)
{
	uint32_t from = 0, to = plan->count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (strcmp(plan->at[middle].name, name) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static struct relocate_variable *find(const struct relocate_plan *plan, const char *name)
{
	uint32_t at = place_of(plan, name);

	return at < plan->count && !strcmp(plan->at[at].name, name) ? &plan->at[at] : NULL;
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

static void insert(struct relocate_plan *plan, uint32_t at, const struct movable *one)
{
	char *name = NULL;

	if (plan->count < VARIABLES_MAX && grow(&plan->at, plan->count, &plan->room, sizeof(*plan->at)))
		name = strdup(one->name);
	if (!name) {
		abandon(plan);
		return;
	}
	memmove(&plan->at[at + 1], &plan->at[at], (plan->count - at) * sizeof(*plan->at));
	plan->at[at] = (struct relocate_variable){.name = name,
		.bytes = one->bytes,
		.alignment = one->alignment,
		.is_constant = one->is_constant};
	plan->count++;
}

/* With very many cubins, variables of earlier cubins are not sorted again for each. The names of
 * one cubin all differ. */
static void add(struct relocate_plan *plan, const struct movable *one)
{
	struct relocate_variable *same = find(plan, one->name);

	if (plan->count && plan->is_managed != one->is_managed)
		abandon(plan);
	plan->is_managed = one->is_managed;
	if (!same) {
		insert(plan, place_of(plan, one->name), one);
		return;
	}
	if (same->bytes != one->bytes || same->is_constant != one->is_constant)
		abandon(plan);
	same->alignment = same->alignment > one->alignment ? same->alignment : one->alignment;
}

void relocate_look(struct relocate_plan *plan, const uint8_t *cubin, size_t bytes)
{
	struct movable_reading reading;

	if (movable_open(&reading, cubin, bytes))
		for (uint64_t i = 0; !plan->is_abandoned && i < reading.count; i++)
			if (!reading.candidates[i].stays)
				add(plan, &reading.candidates[i]);
	movable_close(&reading);
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
	bool is_split;	/* another cubin moves a variable that this cubin cannot, or begins with something
			 * else */
	bool is_done;	/* something was moved */
};

static uint64_t address_of(const struct move *move, const struct movable *one)
{
	const struct relocate_variable *variable = find(move->plan, one->name);

	return variable ? move->at + variable->offset : 0;
}

static bool is_zero(const uint8_t *bytes, uint64_t count)
{
	return !bytes[0] && !memcmp(bytes, bytes + 1, count - 1);
}

/* Sections may overlap, so that a small file has very many first values. */
static bool spend(struct movable_reading *reading, uint64_t bytes)
{
	reading->is_wrong |= bytes > reading->work;
	reading->work -= reading->is_wrong ? 0 : bytes;
	return !reading->is_wrong;
}

/* The file's first values, with addresses filled in. Bytes that the file lacks are skipped: the
 * file may claim any number. */
static void fill(struct move *move, struct movable_reading *reading, const struct movable *one)
{
	struct relocate_variable *variable = find(move->plan, one->name);
	Elf64_Shdr section = elf_section(&reading->elf, one->section);
	const uint8_t *from =
		section.sh_type == SHT_NOBITS ? NULL : move->cubin + section.sh_offset + one->value;
	uint8_t *to = move->plan->first + (variable ? variable->offset : 0);

	if (!variable || (from && !spend(reading, one->bytes)))
		return;
	if (variable->is_filled) {
		move->is_split |= from ? memcmp(to, from, one->bytes) != 0 : !variable->is_zero;
		return;
	}
	if (from)
		memcpy(to, from, one->bytes);
	variable->is_zero = !from || is_zero(from, one->bytes);
	variable->is_filled = true;
}

static void put_at(uint8_t *at, uint32_t type, uint64_t address)
{
	uint32_t half = (uint32_t)(type == MOVABLE_UPPER ? address >> 32 : address);

	if (type == MOVABLE_LOWER || type == MOVABLE_UPPER)
		memcpy(at + MOVABLE_HALF_BYTES, &half, sizeof(half));
	else
		memcpy(at, &address, sizeof(address));
}

/* movable_visit_fn: fills in the address. The driver's own relocations into the same bytes, which
 * compilers never write, would come later. */
static void put(struct movable_reading *reading, const struct movable_relocation *one, void *context)
{
	const struct movable *named = movable_of(reading, one->symbol);
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
static void shorten(struct movable_reading *reading, struct move *move, uint64_t index)
{
	Elf64_Shdr section = elf_section(&reading->elf, index);
	uint64_t left = 0, count = section.sh_size / section.sh_entsize;
	uint8_t *table = move->cubin + section.sh_offset;
	const uint8_t *from = reading->elf.image + section.sh_offset;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t info;
		const struct movable *named;

		memcpy(&info, from + i * section.sh_entsize + offsetof(Elf64_Rel, r_info), sizeof(info));
		named = movable_of(reading, ELF64_R_SYM(info));
		if (!named || named->stays)
			memcpy(table + left++ * section.sh_entsize, from + i * section.sh_entsize,
				section.sh_entsize);
	}
	section.sh_size = left * section.sh_entsize;
	memcpy(move->cubin + reading->elf.header.e_shoff + index * sizeof(section), &section,
		sizeof(section));
}

static void leave_out(struct movable_reading *reading, struct move *move)
{
	for (uint64_t i = 1; i < reading->elf.count; i++) {
		Elf64_Shdr section = elf_section(&reading->elf, i);

		if (elf_relocates(&reading->elf, &section))
			shorten(reading, move, i);
	}
}

/* A variable that moves in one cubin must move in all. */
static bool is_split(const struct relocate_plan *plan, const struct movable_reading *reading)
{
	uint32_t moves = 0;

	for (uint64_t i = 0; i < reading->count; i++)
		moves += !reading->candidates[i].stays && find(plan, reading->candidates[i].name);
	return moves != plan->count;
}

static void move_all(struct movable_reading *reading, struct move *move)
{
	movable_visit(reading, put, move);
	for (uint64_t i = 0; !move->is_split && !reading->is_wrong && i < reading->count; i++)
		if (!reading->candidates[i].stays)
			fill(move, reading, &reading->candidates[i]);
	leave_out(reading, move);
}

CUresult relocate_move(
	struct relocate_plan *plan, uint64_t at, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	struct move move = {.plan = plan, .at = at};
	struct movable_reading reading;
	CUresult code = CUDA_SUCCESS;

	if (!plan->first)
		plan->first = calloc(1, plan->bytes);
	if (!plan->first)
		return CUDA_ERROR_OUT_OF_MEMORY;
	movable_open(&reading, cubin, bytes);
	move.is_split = is_split(plan, &reading);
	move.cubin = move.is_split ? NULL : malloc(bytes);
	if (move.cubin) {
		memcpy(move.cubin, cubin, bytes);
		move_all(&reading, &move);
	} else if (!move.is_split) {
		code = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (move.is_split || reading.is_wrong)
		code = CUDA_ERROR_NOT_SUPPORTED;
	movable_close(&reading);
	if (!code && move.is_done)
		*ret = (struct fatbin_bytes){move.cubin, bytes};
	else
		free(move.cubin);
	return code;
}
