// Variables and constants of images of the compiler's (images/statics.cu, images/constants.cu) that
// are moved: which of them, where everything that has their addresses finds them then, and their
// first values; and images that lie.

#include <stdlib.h>
#include <string.h>

#include "server/backend/cubin.h"
#include "server/backend/fatbin.h"
#include "server/backend/image.h"
#include "server/backend/relocate.h"
#include "tests/lib/seed.h"
#include "tests/unit/server/backend/image_bed.h"
#include "tests/unit/server/backend/sorted.h"

#define MUTATIONS 20000
#define AT	  UINT64_C(0x540012345600)

static struct relocate_plan plan;
static struct fatbin_bytes moved;

static void forget(void)
{
	relocate_deinit(&plan);
	free(moved.at);
	moved = (struct fatbin_bytes){0};
}

static void forget_all(void)
{
	forget();
	unload();
}

/* fatbin_visit, twice */
static CUresult look_at(void *context, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	(void)ret;
	relocate_look(context, cubin, bytes);
	return CUDA_SUCCESS;
}

static CUresult move_it(void *context, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	return relocate_move(context, AT, cubin, bytes, ret);
}

static CUresult move_all(void)
{
	bool is_cubin = image_check(image, image_bytes) != IMAGE_FATBIN;
	struct fatbin_bytes none = {0};

	if (is_cubin)
		relocate_look(&plan, image, image_bytes);
	else
		ck_assert_int_eq(fatbin_rewrite(image, 90, UINT64_MAX, look_at, &plan, &none), CUDA_SUCCESS);
	relocate_lay_out(&plan);
	if (!plan.bytes)
		return CUDA_SUCCESS;
	if (is_cubin)
		return relocate_move(&plan, AT, image, image_bytes, &moved);
	return fatbin_rewrite(image, 90, UINT64_MAX, move_it, &plan, &moved);
}

static const struct relocate_variable *variable(const char *name)
{
	const struct relocate_variable *found = relocate_find(&plan, name);

	ck_assert_msg(found != NULL, "%s stays", name);
	return found;
}

static uint64_t address(const char *name)
{
	return AT + variable(name)->offset;
}

static uint32_t first_word(const char *name, size_t index)
{
	uint32_t word;

	memcpy(&word, plan.first + variable(name)->offset + 4 * index, sizeof(word));
	return word;
}

/* ---- what is in an image ---- */

static uint64_t symbol_index(const char *name)
{
	Elf64_Shdr *symtab;
	const Elf64_Sym *symbols = section_in(image, ".symtab", &symtab);

	return (uint64_t)(symbol(name) - symbols);
}

static Elf64_Rela *relocation_of(const char *table, const char *name)
{
	Elf64_Shdr *where;
	Elf64_Rela *at = section_in(image, table, &where);

	for (uint64_t i = 0; i < where->sh_size / sizeof(*at); i++)
		if (ELF64_R_SYM(at[i].r_info) == symbol_index(name))
			return &at[i];
	ck_abort_msg("no relocation of %s in %s", name, table);
}

/* What code reads the variable's address from. */
static uint64_t slot(const uint8_t *file, uint64_t offset)
{
	Elf64_Shdr *where;
	const uint8_t *table = section_in((uint8_t *)(uintptr_t)file, ".nv.constant4", &where);
	uint64_t value;

	ck_assert_uint_le(offset + 8, where->sh_size);
	memcpy(&value, table + offset, sizeof(value));
	return value;
}

static uint64_t size_of_section(const uint8_t *file, const char *name)
{
	Elf64_Shdr *where;

	section_in((uint8_t *)(uintptr_t)file, name, &where);
	return where->sh_size;
}

/* ---- what moves ---- */

static const char *const names[] = {
	"own", "counter", "table", "untouched", "pointed", "pointer", "_ZZ6countsE5inner"};
#define NAMES	  (sizeof(names) / sizeof(names[0]))
#define CONSTANTS 1 /* setting */

static void expect_all(void)
{
	uint64_t pointer;

	ck_assert_uint_eq(plan.count, NAMES + CONSTANTS);
	for (size_t i = 0; i < NAMES; i++) {
		ck_assert_uint_ge(variable(names[i])->offset, RELOCATE_ALIGNMENT);
		ck_assert_uint_eq(variable(names[i])->offset % variable(names[i])->alignment, 0);
		ck_assert_uint_le(variable(names[i])->offset + variable(names[i])->bytes, plan.bytes);
	}
	ck_assert_uint_eq(first_word("own", 0), 7);
	ck_assert_uint_eq(first_word("counter", 0), 0);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(first_word("table", i), i + 1);
	memcpy(&pointer, plan.first + variable("pointer")->offset, sizeof(pointer));
	ck_assert_uint_eq(pointer, address("pointed"));
	ck_assert_ptr_null(relocate_find(&plan, "$str"));
}

TEST(relocate, code_finds_variables_in_their_block)
{
	struct statics statics = {0};

	load("statics.cubin");
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	expect_all();
	ck_assert_uint_eq(moved.count, image_bytes);
	for (size_t i = 0; i < NAMES; i++)
		ck_assert_uint_eq(slot(moved.at, relocation_of(".rela.nv.constant4", names[i])->r_offset),
			address(names[i]));
	/* Literals and functions are the driver's. */
	ck_assert_uint_eq(size_of_section(moved.at, ".rela.nv.constant4"),
		size_of_section(image, ".rela.nv.constant4") - NAMES * sizeof(Elf64_Rela));
	ck_assert_uint_eq(size_of_section(moved.at, ".rela.nv.global.init"), 0);
	/* Kernels leave nothing behind in the context. */
	cubin_add_statics(&statics, moved.at, moved.count);
	ck_assert(statics_are_none(&statics));
	statics_deinit(&statics);
}

/* There relocations have no addends of their own. */
TEST(relocate, older_devices_have_another_form)
{
	Elf64_Shdr *table;

	load("statics_75.cubin");
	section_in(image, ".rel.nv.constant4", &table);
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	expect_all();
	ck_assert_uint_lt(size_of_section(moved.at, ".rel.nv.constant4"), table->sh_size);
}

static const char *const fatbins[] = {"statics.fatbin", "statics_lz4.fatbin", "statics_zstd.fatbin"};

TEST_LOOP(relocate, fat_binaries_are_moved, 0, 3)
{
	load(fatbins[_i]);
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	expect_all();
	ck_assert_int_eq(image_check(moved.at, moved.count), IMAGE_FATBIN);
}

/* Half an address in an instruction. */
static uint32_t half_in(const char *code, uint64_t offset)
{
	Elf64_Shdr *where;
	const uint8_t *at = section_in(moved.at, code, &where);
	uint32_t half;

	memcpy(&half, at + offset + 4, sizeof(half));
	return half;
}

/* Instructions have the addresses. */
TEST(relocate, what_was_linked_from_parts_moves)
{
	struct statics statics = {0};
	const Elf64_Rela *lower;

	load("statics_linked.cubin");
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_uint_eq(plan.count, NAMES + 1 + CONSTANTS);
	lower = relocation_of(".rela.text.counts", "counter");
	ck_assert_uint_eq(half_in(".text.counts", lower->r_offset), (uint32_t)address("counter"));
	ck_assert_uint_eq(half_in(".text.counts", lower[1].r_offset), address("counter") >> 32);
	ck_assert_uint_eq(size_of_section(moved.at, ".rela.text.counts"), 0);
	cubin_add_statics(&statics, moved.at, moved.count);
	ck_assert(statics_are_none(&statics));
	statics_deinit(&statics);
}

/* With a second form of the program inside, of which nothing is known. */
TEST(relocate, newer_devices_keep_their_variables)
{
	load("statics_100.cubin");
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_uint_eq(plan.bytes, 0);
	ck_assert_ptr_null(moved.at);
}

static void make_function(void)
{
	symbol("pointed")->st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC);
}

static void make_managed(void)
{
	symbol("pointed")->st_other = 4;
}

static void make_far(void)
{
	relocation_of(".rela.nv.global.init", "pointed")->r_info = ELF64_R_INFO(symbol_index("pointed"), 56);
}

static void make_wide(void)
{
	Elf64_Shdr *where;

	section_in(image, ".nv.global", &where);
	where->sh_addralign = 4096;
}

static void share_name(void)
{
	symbol("pointed")->st_name = symbol("counter")->st_name;
}

static void share_bytes(void)
{
	symbol("pointed")->st_size = 8;
}

/* The slot of one leads into the other, under a name that is no variable's. */
static void share_place(void)
{
	Elf64_Sym *alias = symbol("untouched"), *counter = symbol("counter");

	alias->st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE);
	alias->st_shndx = counter->st_shndx;
	alias->st_value = counter->st_value;
}

/* Who begins with the address of something that stays, stays. */
TEST(relocate, what_is_not_understood_stays)
{
	static const struct {
		void (*change)(void);
		const char *stay[3];
		const char *move;
	} cases[] = {
		{make_function, {"pointed", "pointer"}, "own"},
		{make_far, {"pointed", "pointer"}, "own"},
		{make_wide, {"pointed", "pointer"}, "own"},
		{share_name, {"counter", "pointer"}, "own"},
		{share_bytes, {"pointed", "pointer", "counter"}, "own"},
		{share_place, {"untouched", "counter"}, "own"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		load("statics.cubin");
		cases[i].change();
		ck_assert_int_eq(move_all(), CUDA_SUCCESS);
		for (int j = 0; j < 3 && cases[i].stay[j]; j++)
			ck_assert_msg(!relocate_find(&plan, cases[i].stay[j]), "%zu: %s moves", i,
				cases[i].stay[j]);
		variable(cases[i].move);
		forget();
	}
}

/* The block is in managed memory then, which is no place for what only kernels use. */
TEST(relocate, managed_variables_move_alone)
{
	load("statics.cubin");
	make_managed();
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert(plan.is_managed);
	ck_assert_uint_eq(plan.count, 1);
	ck_assert_uint_eq(
		slot(moved.at, relocation_of(".rela.nv.constant4", "pointed")->r_offset), address("pointed"));
	forget();
	load("statics.cubin");
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert(!plan.is_managed);
}

/* Such names could be many, and each is looked through to its end. */
TEST(relocate, names_that_do_not_end_keep_everything)
{
	load("statics.cubin");
	symbol("counter")->st_name = UINT32_MAX;
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_uint_eq(plan.count, 0);
}

/* Nobody knows which of its variables is meant. */
TEST(relocate, what_is_named_by_its_section_stays)
{
	Elf64_Rela *one;

	load("statics.cubin");
	one = relocation_of(".rela.nv.constant4", "untouched");
	for (uint64_t i = 1; i < 16; i++) {
		Elf64_Shdr *symtab;
		const Elf64_Sym *symbols = section_in(image, ".symtab", &symtab);

		if (ELF64_ST_TYPE(symbols[i].st_info) == STT_SECTION &&
			symbols[i].st_shndx == symbol("counter")->st_shndx)
			one->r_info = ELF64_R_INFO(i, ELF64_R_TYPE(one->r_info));
	}
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_ptr_null(relocate_find(&plan, "counter"));
	ck_assert_ptr_null(relocate_find(&plan, "untouched"));
	variable("own");
}

/* Only one of them will be loaded, and nobody knows which. */
TEST(relocate, cubins_of_different_minds_stay_as_they_are)
{
	load("statics_kernels.cubin");
	relocate_look(&plan, image, image_bytes);
	load("statics.cubin");
	relocate_look(&plan, image, image_bytes);
	relocate_lay_out(&plan);
	ck_assert_uint_gt(plan.bytes, 0);
	ck_assert_int_eq(relocate_move(&plan, AT, image, image_bytes, &moved), CUDA_SUCCESS);
	free(moved.at);
	moved.at = NULL;
	load("statics_kernels.cubin");
	ck_assert_int_eq(relocate_move(&plan, AT, image, image_bytes, &moved), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_ptr_null(moved.at);
}

TEST(relocate, different_first_values_stay)
{
	Elf64_Shdr *where;
	uint8_t *values;

	load("statics.cubin");
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	free(moved.at);
	moved.at = NULL;
	values = section_in(image, ".nv.global.init", &where);
	values[symbol("own")->st_value] ^= 1;
	ck_assert_int_eq(relocate_move(&plan, AT, image, image_bytes, &moved), CUDA_ERROR_NOT_SUPPORTED);
}

/* ---- constants ---- */

static const char *const with_constants[] = {"constants.cubin", "constants_75.cubin"};

/* Of 64 bits. */
static uint64_t first_address(const char *name)
{
	uint64_t value;

	memcpy(&value, plan.first + variable(name)->offset, sizeof(value));
	return value;
}

TEST_LOOP(relocate, constants_get_a_mirror, 0, 2)
{
	const char *constants[] = {"scale", "table", "flag", "pointer"};

	load(with_constants[_i]);
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_uint_eq(plan.count, 6);
	for (int i = 0; i < 4; i++)
		ck_assert(variable(constants[i])->is_constant);
	ck_assert(!variable("pointed")->is_constant && !variable("begins")->is_constant);
	ck_assert_uint_eq(variable("table")->bytes, 64);
	ck_assert_uint_eq(variable("flag")->bytes, 1);
	ck_assert_uint_eq(first_word("scale", 0), 3);
	ck_assert_uint_eq(first_word("table", 3), 14);
	ck_assert_uint_eq(plan.first[variable("flag")->offset], 9);
}

/* The driver's constant begins as its mirror does; who begins with a constant's address has the
 * mirror's. */
TEST_LOOP(relocate, addresses_and_constants_fit_together, 0, 2)
{
	Elf64_Shdr *where;
	const uint8_t *constants;
	uint64_t value;

	load(with_constants[_i]);
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_uint_eq(first_address("pointer"), address("pointed"));
	ck_assert_uint_eq(first_address("begins"), address("table") + 8);
	constants = section_in(moved.at, ".nv.constant3", &where);
	memcpy(&value, constants + symbol("pointer")->st_value, sizeof(value));
	ck_assert_uint_eq(value, address("pointed"));
}

/* Code could tell such a constant from its mirror. What it begins with moves. */
TEST_LOOP(relocate, constants_whose_address_code_takes_stay, 0, 2)
{
	static const char *const known[] = {"constants_known.cubin", "constants_known_75.cubin"};

	load(known[_i]);
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_uint_eq(plan.count, 1);
	variable("pointed");
}

/* A table of functions stays, the others do not. */
TEST(relocate, constants_that_begin_with_what_stays_stay)
{
	load("constants_linked.cubin");
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_ptr_null(relocate_find(&plan, "functions"));
	ck_assert(variable("pointer")->is_constant);
	ck_assert_uint_eq(first_address("begins"), address("table") + 8);
}

/* In code it may be its place in the bank. */
static void name_in_code(void)
{
	Elf64_Rela *one = relocation_of(".rela.text.use", "begins");

	one->r_info = ELF64_R_INFO(symbol_index("scale"), 56);
}

static void make_device_old(void)
{
	Elf64_Ehdr header = header_in(image);

	header.e_flags = (header.e_flags & ~UINT32_C(0xffff)) | 70 << 8 | 70;
	memcpy(image, &header, sizeof(header));
}

static void move_constant_on_device(void)
{
	symbol("scale")->st_other = 4;
}

TEST(relocate, constants_that_are_not_understood_stay)
{
	static void (*const changes[])(void) = {name_in_code, make_device_old, move_constant_on_device};

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		load("constants_linked.cubin");
		changes[i]();
		ck_assert_int_eq(move_all(), CUDA_SUCCESS);
		ck_assert_msg(!relocate_find(&plan, "scale"), "%zu: it moves", i);
		forget();
	}
}

/* ---- lies ---- */

static uint32_t random_state;

static uint32_t random_below(uint32_t end)
{
	if (!random_state)
		random_state = seed_of(4711);
	random_state = random_state * UINT32_C(1664525) + UINT32_C(1013904223);
	return (random_state >> 8) % end;
}

TEST_LOOP(lies, images_may_lie, 0, 5)
{
	static const char *const images[] = {"statics.cubin", "statics_75.cubin", "statics_linked.cubin",
		"constants.cubin", "constants_linked.cubin"};
	uint8_t *whole;

	load(images[_i]);
	whole = malloc(image_bytes);
	memcpy(whole, image, image_bytes);
	/* Not a byte more: a look beyond it is one beyond the image. */
	free(image);
	image = malloc(image_bytes);
	for (int round = 0; round < MUTATIONS; round++) {
		uint32_t changes = 1 + random_below(8);

		memcpy(image, whole, image_bytes);
		for (uint32_t i = 0; i < changes; i++)
			image[random_below((uint32_t)image_bytes)] = (uint8_t)random_below(256);
		if (image_check(image, image_bytes) == IMAGE_ELF)
			move_all();
		forget();
	}
	free(whole);
}

TEST_LOOP(lies, sections_without_a_type_may_lie, 0, MISPLACED)
{
	load("statics.cubin");
	misplace(misplaced[_i].name, misplaced[_i].as);
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_uint_eq(plan.count, 0);
	ck_assert_ptr_null(moved.at);
}

/* 600 thousand symbols are the same text of 16 MiB: it is not read as often. */
TEST(lies, texts_may_have_many_names)
{
	build_texts(600000, 16 << 20, 0, 0);
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_uint_eq(plan.count, 0);
}

/* An image with so many sections of variables, all in the same bytes and with one variable each,
 * whose names end in one another. */
static void build_large(unsigned count, uint32_t type, uint64_t bytes)
{
	static const char texts[32] = "\0.nv.global\0.nv.global.init";
	const size_t names_at = sizeof(texts), values = type == SHT_NOBITS ? 0 : bytes;
	size_t at, symbols_at, values_at;
	Elf64_Shdr *sections =
		begin_image(3 + count, names_at + count + 1 + (1 + count) * sizeof(Elf64_Sym) + values, &at);
	Elf64_Sym *symbols;

	memcpy(image + at, texts, sizeof(texts));
	memset(image + at + names_at, 'v', count);
	symbols_at = at + names_at + count + 1;
	values_at = symbols_at + (1 + count) * sizeof(*symbols);
	symbols = calloc(1 + count, sizeof(*symbols));
	sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = at, .sh_size = symbols_at - at};
	sections[2] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
		.sh_link = 1,
		.sh_entsize = sizeof(*symbols),
		.sh_offset = symbols_at,
		.sh_size = values_at - symbols_at};
	for (unsigned i = 0; i < count; i++) {
		symbols[1 + i] = (Elf64_Sym){.st_name = (Elf64_Word)names_at + i,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
			.st_shndx = (Elf64_Section)(3 + i),
			.st_size = bytes};
		sections[3 + i] = (Elf64_Shdr){.sh_type = type,
			.sh_name = type == SHT_NOBITS ? 1 : 12,
			.sh_flags = SHF_ALLOC | SHF_WRITE,
			.sh_offset = values_at,
			.sh_size = bytes,
			.sh_addralign = 8};
	}
	memcpy(image + symbols_at, symbols, (1 + count) * sizeof(*symbols));
	free(symbols);
}

/* As a fat binary has some MiB of such members, they claim 128 GiB: nobody looks at those. */
static void move_many(void)
{
	for (int i = 0; i < 8192; i++)
		ck_assert_int_eq(relocate_move(&plan, AT, image, image_bytes, &moved), CUDA_SUCCESS);
}

TEST_LOOP(large, members_may_have_large_variables, 0, 2)
{
	const uint64_t bytes = 16 << 20;

	build_large(1, _i ? SHT_PROGBITS : SHT_NOBITS, bytes);
	ck_assert_int_eq(move_all(), CUDA_SUCCESS);
	ck_assert_uint_eq(variable("v")->bytes, bytes);
	unload();
	build_large(1, SHT_NOBITS, bytes);
	move_many();
}

/* So many variables of which each begins with the address of the next, and one more, to which the
 * last of them leads unless it ends in a function. So many tables hold their relocations, in the
 * same bytes. */
static void build_chain(unsigned count, bool ends, unsigned tables)
{
	static const char texts[32] = "\0.nv.global.init";
	const size_t name_bytes = sizeof(texts) + 5 * (count + 1);
	const size_t symbols = (3 + count) * sizeof(Elf64_Sym), relocations = count * sizeof(Elf64_Rel);
	size_t at;
	Elf64_Shdr *sections =
		begin_image(4 + tables, name_bytes + symbols + relocations + 8 * (count + 1), &at);

	memcpy(image + at, texts, sizeof(texts));
	sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = at, .sh_size = name_bytes};
	sections[2] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
		.sh_link = 1,
		.sh_entsize = sizeof(Elf64_Sym),
		.sh_offset = at + name_bytes,
		.sh_size = symbols};
	sections[3] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
		.sh_name = 1,
		.sh_flags = SHF_ALLOC | SHF_WRITE,
		.sh_offset = at + name_bytes + symbols + relocations,
		.sh_size = 8 * (count + 1),
		.sh_addralign = 8};
	for (unsigned i = 0; i < tables; i++)
		sections[4 + i] = (Elf64_Shdr){.sh_type = SHT_REL,
			.sh_link = 2,
			.sh_info = 3,
			.sh_entsize = sizeof(Elf64_Rel),
			.sh_offset = at + name_bytes + symbols,
			.sh_size = relocations};
	for (unsigned i = 0; i <= count; i++) {
		const Elf64_Sym symbol = {.st_name = (Elf64_Word)sizeof(texts) + 5 * i,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
			.st_shndx = 3,
			.st_value = 8 * i,
			.st_size = 8};
		const Elf64_Rel one = {8 * i, ELF64_R_INFO((uint64_t)i + 2 + (ends && i + 1 == count), 2)};

		snprintf((char *)image + at + sizeof(texts) + 5 * i, 5, "%04x", i);
		memcpy(image + at + name_bytes + (1 + i) * sizeof(symbol), &symbol, sizeof(symbol));
		if (i < count)
			memcpy(image + at + name_bytes + symbols + i * sizeof(one), &one, sizeof(one));
	}
	memcpy(image + at + name_bytes + (2 + count) * sizeof(Elf64_Sym),
		&(Elf64_Sym){.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)}, sizeof(Elf64_Sym));
}

/* As a fat binary has of members with one variable each. */
TEST(large, members_may_have_a_variable_each)
{
	char *name;

	build_chain(1, true, 1);
	relocate_look(&plan, image, image_bytes);
	ck_assert_uint_eq(plan.count, 1);
	name = (char *)memmem(image, image_bytes, "0001", 5);
	ck_assert_ptr_nonnull(name);
	sorted = 0;
	for (int i = 0; i < 4000; i++) {
		snprintf(name, 5, "%04x", (i * 40503) & 0xffff);
		relocate_look(&plan, image, image_bytes);
	}
	ck_assert_uint_lt(sorted, 40000);
	ck_assert(!plan.is_abandoned);
	ck_assert_uint_eq(plan.count, 4000);
	for (uint32_t i = 1; i < plan.count; i++)
		ck_assert_int_lt(strcmp(plan.at[i - 1].name, plan.at[i].name), 0);
}

/* 512 MiB in a file of one: they are neither copied nor compared. */
TEST(large, large_variables_may_lie_on_one_another)
{
	build_large(512, SHT_PROGBITS, 1 << 20);
	ck_assert_int_eq(move_all(), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(plan.count, 512);
	ck_assert(!plan.at[2].is_filled);
}

/* Relocations are not gone through once for each link. */
TEST(lies, addresses_may_form_a_long_chain)
{
	build_chain(1000, true, 1);
	relocate_look(&plan, image, image_bytes);
	ck_assert_uint_eq(plan.count, 1);
	ck_assert_str_eq(plan.at[0].name, "03e8");
}

/* Each byte is looked at once. */
TEST_LOOP(lies, tables_may_lie_on_one_another, 0, 2)
{
	static const unsigned tables[] = {1, 8}, counts[] = {1001, 0};

	build_chain(1000, false, tables[_i]);
	relocate_look(&plan, image, image_bytes);
	ck_assert_uint_eq(plan.count, counts[_i]);
}

int main(void)
{
	Suite *suite = suite_create("relocate");
	TCase *tests = tcase_create("relocate"), *lies = tcase_create("lies"), *large = tcase_create("large");

	tcase_add_checked_fixture(tests, NULL, forget_all);
	suite_add(tests, "relocate");
	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(lies, NULL, forget_all);
	tcase_set_timeout(lies, 120);
	suite_add(lies, "lies");
	suite_add_tcase(suite, lies);
	tcase_add_checked_fixture(large, NULL, forget_all);
	tcase_set_timeout(large, 20);
	suite_add(large, "large");
	suite_add_tcase(suite, large);
	return suite_run(suite);
}
