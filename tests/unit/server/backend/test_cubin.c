// What is read from images of the compiler's (images/statics.cu): which variables kernels may
// write, and which kernels those are; from fat binaries, however they are compressed; and from
// images that lie.

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/backend/cubin.h"
#include "server/backend/fatbin.h"
#include "server/backend/image.h"
#include "server/backend/sass.h"
#include "tests/lib/seed.h"
#include "tests/unit/server/backend/image_bed.h"
#include "tests/unit/server/backend/sorted.h"

#define MUTATIONS 20000

/* fatbin_visit */
static CUresult look_at(void *context, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	(void)ret;
	cubin_add_statics(context, cubin, bytes);
	return CUDA_SUCCESS;
}

static struct statics statics_of(const uint8_t *bytes, size_t count)
{
	struct statics statics = {0};
	struct fatbin_bytes none = {0};

	if (image_check(bytes, count) != IMAGE_FATBIN)
		cubin_add_statics(&statics, bytes, count);
	else if (fatbin_rewrite(bytes, 90, UINT64_MAX, look_at, &statics, &none))
		statics_add_more(&statics, "it cannot be unpacked");
	ck_assert_ptr_null(none.at);
	return statics;
}

/* Reads what was loaded. */
static struct statics statics_now(void)
{
	return statics_of(image, image_bytes);
}

static uint64_t bytes_of(const struct statics *statics, const char *name)
{
	for (uint32_t i = 0; i < statics->count; i++)
		if (!strcmp(statics->variables[i].name, name))
			return statics->variables[i].bytes;
	return 0;
}

/* ---- changes ---- */

/* Symbols that are local to the file, and have no name. */
static void change_calls(void)
{
	static const char *const names[] = {"malloc", "free"};

	for (int i = 0; i < 2; i++)
		symbol(names[i])->st_info = ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE);
}

/* ---- what is found ---- */

static void check_common(const struct statics *statics)
{
	ck_assert_msg(!statics->more, "%s", statics->more);
	ck_assert_uint_eq(bytes_of(statics, "counter"), 4);
	ck_assert_uint_eq(bytes_of(statics, "table"), 16);
	ck_assert_uint_eq(bytes_of(statics, "_ZZ6countsE5inner"), 4);
	/* One is named in the other. */
	ck_assert_uint_eq(bytes_of(statics, "pointer"), 8);
	ck_assert_uint_eq(bytes_of(statics, "pointed"), 4);
	/* Constants, and literals. */
	ck_assert_uint_eq(bytes_of(statics, "setting"), 0);
	ck_assert_uint_eq(bytes_of(statics, "$str"), 0);
	ck_assert_uint_eq(bytes_of(statics, "__unnamed_1"), 0);
}

static const char *const whole[] = {
	"statics.cubin", "statics_75.cubin", "statics.fatbin", "statics_lz4.fatbin", "statics_zstd.fatbin"};

TEST_LOOP(cubin, variables_are_found, 0, sizeof(whole) / sizeof(whole[0]))
{
	struct statics statics;

	load(whole[_i]);
	statics = statics_now();
	check_common(&statics);
	ck_assert_uint_eq(bytes_of(&statics, "own"), 4);
	/* No code has its address. */
	ck_assert_uint_eq(bytes_of(&statics, "untouched"), 0);
	ck_assert_uint_eq(statics.count, 6);
	statics_deinit(&statics);
}

/* Of code that is not read every variable counts. */
TEST(cubin, code_of_an_unknown_device_may_have_everything)
{
	struct statics statics;

	load("statics_100.cubin");
	statics = statics_now();
	check_common(&statics);
	ck_assert_uint_eq(statics.count, 7);
	ck_assert(statics_reached_by(&statics, "counts"));
	statics_deinit(&statics);
}

TEST(cubin, parts_that_were_linked_have_variables_of_their_own)
{
	struct statics statics;
	uint32_t owns = 0;

	load("statics_linked.cubin");
	statics = statics_now();
	check_common(&statics);
	for (uint32_t i = 0; i < statics.count; i++)
		owns += !!strstr(statics.variables[i].name, "_own");
	ck_assert_uint_eq(owns, 2);
	ck_assert(statics_reached_by(&statics, "counts_too"));
	statics_deinit(&statics);
}

TEST(cubin, what_only_asserts_and_prints_leaves_nothing)
{
	struct statics statics;

	load("statics_none.cubin");
	statics = statics_now();
	ck_assert_msg(!statics.more, "%s", statics.more);
	ck_assert(statics_are_none(&statics));
	ck_assert(statics.calls && !statics.nests);
	ck_assert(!statics_reached_by(&statics, "complains"));
	load("printing.cubin");
	statics = statics_now();
	ck_assert(statics_are_none(&statics));
}

TEST(cubin, a_heap_cannot_be_taken_along)
{
	struct statics statics;

	load("statics_heap.cubin");
	statics = statics_now();
	ck_assert_str_eq(statics.more, "its kernels use the device's heap");
	ck_assert(statics_reached_by(&statics, "counts"));
	statics_deinit(&statics);
	/* Not the driver's. */
	change_calls();
	statics = statics_now();
	ck_assert_ptr_null(statics.more);
	statics_deinit(&statics);
}

/* The name stands for the one of a call that every kernel that launches kernels makes. */
TEST(cubin, kernels_that_launch_kernels_are_known)
{
	static const char name[] = "__cuda_syscall_cnpv2LaunchDeviceV2";
	struct statics statics;
	Elf64_Shdr *names;

	load("statics_none.cubin");
	section_in(image, ".strtab", &names);
	ck_assert_uint_gt(names->sh_size, sizeof(name));
	memcpy(image + names->sh_offset + names->sh_size - sizeof(name), name, sizeof(name));
	symbol("vprintf")->st_name = (uint32_t)(names->sh_size - sizeof(name));
	statics = statics_now();
	ck_assert(statics.calls && statics.nests);
	ck_assert_str_eq(statics.more, "its kernels call functions of the driver");
	statics_deinit(&statics);
}

/* ---- what is not understood ---- */

/* Reads what was changed: there is more than is known. */
static void check_more(const char *why)
{
	struct statics statics = statics_now();

	ck_assert_ptr_nonnull(statics.more);
	ck_assert_str_eq(statics.more, why);
	statics_deinit(&statics);
	load("statics.cubin");
}

TEST(cubin, what_cannot_be_told_is_not_guessed)
{
	Elf64_Shdr *shdr;

	load("statics.cubin");
	symbol("counter")->st_name = symbol("pointed")->st_name;
	check_more("two of its variables have the same name");
	symbol("counter")->st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION);
	check_more("its variables have no names");
	symbol("counter")->st_shndx = SHN_COMMON;
	check_more("its image is not understood");
	symbol("counter")->st_size = 0;
	check_more("its image is not understood");
	symbol("counter")->st_name = UINT32_MAX;
	check_more("its image is not understood");
	symbol("vprintf")->st_name = symbol("counter")->st_name;
	check_more("its kernels call functions of the driver");
	section_in(image, ".rela.nv.constant4", &shdr);
	shdr->sh_entsize = 8;
	check_more("its image is not understood");
	section_in(image, ".rela.nv.constant4", &shdr);
	shdr->sh_link = 0;
	check_more("its image is not understood");
	section_in(image, ".symtab", &shdr);
	shdr->sh_type = SHT_NULL;
	check_more("its image is not understood");
}

/* Names alone make no literal. */
TEST(cubin, a_literal_is_a_text)
{
	struct statics statics;
	Elf64_Shdr *shdr;
	char *bytes;

	load("statics.cubin");
	bytes = section_in(image, ".nv.global.init", &shdr);
	bytes[symbol("$str")->st_value + 1] = '\0';
	statics = statics_now();
	ck_assert_uint_eq(bytes_of(&statics, "$str"), symbol("$str")->st_size);
	statics_deinit(&statics);
	load("statics.cubin");
	symbol("$str")->st_size--;
	statics = statics_now();
	ck_assert_uint_eq(bytes_of(&statics, "$str"), symbol("$str")->st_size);
	statics_deinit(&statics);
}

/* The section is at the end of the file then, with a text of `bytes` behind what was in it. */
static void lengthen_literal(size_t bytes)
{
	Elf64_Shdr *shdr;
	const uint8_t *old = section_in(image, ".nv.global.init", &shdr);

	ck_assert_uint_le(image_bytes + shdr->sh_size + bytes, IMAGE_BYTES);
	memcpy(image + image_bytes, old, shdr->sh_size);
	symbol("$str")->st_value = shdr->sh_size;
	symbol("$str")->st_size = bytes;
	shdr->sh_offset = image_bytes;
	memset(image + image_bytes + shdr->sh_size, 'a', bytes);
	shdr->sh_size += bytes;
	image_bytes += shdr->sh_size;
	image[image_bytes - 1] = '\0';
}

TEST_LOOP(cubin, very_long_literals_count_as_variables, 0, 2)
{
	static const size_t sizes[] = {4096, 4097}, found[] = {0, 4097};
	struct statics statics;

	load("statics.cubin");
	lengthen_literal(sizes[_i]);
	statics = statics_now();
	ck_assert_msg(!statics.more, "%s", statics.more);
	ck_assert_uint_eq(bytes_of(&statics, "$str"), found[_i]);
	statics_deinit(&statics);
}

/* Which kernel has what is told apart: each alone does not have the other's. */
TEST(cubin, kernels_are_told_apart)
{
	struct statics statics;

	load("statics.cubin");
	statics = statics_now();
	/* What is named in a variable is everybody's. */
	ck_assert(statics.every);
	ck_assert(statics_reached_by(&statics, "complains"));
	statics_deinit(&statics);
	load("statics_kernels.cubin");
	statics = statics_now();
	ck_assert_uint_eq(statics.count, 1);
	ck_assert(statics_reached_by(&statics, "counts"));
	ck_assert(!statics_reached_by(&statics, "does_not"));
	ck_assert(!statics_reached_by(&statics, "complains"));
	statics_deinit(&statics);
	/* A function is anybody's. */
	symbol("counts")->st_other = 0;
	statics = statics_now();
	ck_assert(statics_reached_by(&statics, "does_not"));
	statics_deinit(&statics);
}

/* ---- machine code ---- */

static bool reads(uint64_t low, uint64_t high, bool ret_is_read[4])
{
	/* MOV R2, 8; NOP; the instruction. */
	const uint64_t code[6] = {UINT64_C(0x0000000800027802), 0x0f00, UINT64_C(0xff7918), 0, low, high};
	const bool is_function[4] = {false, true, false, false};

	uint64_t read[4];

	memset(ret_is_read, 0, 4);
	return sass_note_reads((const uint8_t *)code, sizeof(code),
		&(struct sass_table){4, is_function, ret_is_read, read, 0});
}

/* LDC or ULDC of 64 bits from bank 4. */
static uint64_t from_bank(uint64_t operation, uint64_t index, uint64_t offset)
{
	return operation | UINT64_C(7) << 12 | UINT64_C(6) << 16 | index << 24 | offset << 38 |
	       UINT64_C(4) << 54;
}

TEST(cubin, loads_of_addresses_are_understood)
{
	const uint64_t wide = UINT64_C(5) << 9, four = UINT64_C(4) << 9;
	bool is_read[4];

	ck_assert(reads(from_bank(0xb82, 255, 16), wide, is_read));
	ck_assert(!is_read[0] && !is_read[1] && is_read[2] && !is_read[3]);
	ck_assert(reads(from_bank(0xb82, 255, 12), wide, is_read));
	ck_assert(is_read[1] && is_read[2] && !is_read[3]);
	ck_assert(reads(from_bank(0xab9, 0, 28), four, is_read));
	ck_assert(is_read[3] && !is_read[2]);
	/* Another operation, with a constant or a number that looks like one. */
	ck_assert(reads(from_bank(0x624, 255, 20), 0, is_read));
	ck_assert(is_read[2] && !is_read[3]);
	/* With an index: only where functions are. */
	ck_assert(reads(from_bank(0xb82, 2, 0), wide, is_read));
	ck_assert(!is_read[0] && !is_read[1]);
	ck_assert(!reads(from_bank(0xb82, 2, 8), wide, is_read));
	ck_assert(!reads(from_bank(0xb82, 2, 4), wide, is_read));
	ck_assert(!reads(from_bank(0xb82, 3, 0), wide, is_read));
	ck_assert(!reads(from_bank(0xb82, 2, 0), wide | 1 << 14, is_read));
	ck_assert(!reads(from_bank(0xab9, 2, 0), wide, is_read));
	/* Beyond the table. */
	ck_assert(!reads(from_bank(0xb82, 255, 28), wide, is_read));
	/* Another bank. */
	ck_assert(reads(from_bank(0xb82, 255, 0) & ~(UINT64_C(4) << 54), wide, is_read));
	ck_assert(!is_read[0]);
}

/* MOV R2, 8 each `distance` instructions; all others load with R2 as index. */
static bool read_loads(uint64_t *code, uint64_t count, uint64_t distance)
{
	const bool is_function[4] = {false, true, false, false};
	bool is_read[4] = {false};
	uint64_t read[4];

	for (uint64_t i = 0; i < count; i++) {
		code[2 * i] = i % distance ? from_bank(0xb82, 2, 0) : UINT64_C(0x0000000800027802);
		code[2 * i + 1] = UINT64_C(5) << 9;
	}
	return sass_note_reads(
		(const uint8_t *)code, 16 * count, &(struct sass_table){4, is_function, is_read, read, 0});
}

TEST(cubin, an_index_is_looked_for_so_far)
{
	uint64_t code[2 * 66];

	ck_assert(read_loads(code, 65, 66));
	ck_assert(!read_loads(code, 66, 66));
}

static uint64_t processor_time(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* The best of some tries: the processor is not ours alone. */
static uint64_t time_loads(uint64_t *code, uint64_t count, uint64_t distance)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		uint64_t begin = processor_time(), took;

		ck_assert(read_loads(code, count, distance));
		took = processor_time() - begin;
		best = took < best ? took : best;
	}
	return best;
}

/* Whoever loads a module next waits for it. */
TEST(cubin, many_loads_take_no_longer_far_from_their_index)
{
	const uint64_t count = 1 << 18;
	uint64_t *code = calloc(count, 16);

	ck_assert_uint_lt(time_loads(code, count, 64), 4 * time_loads(code, count, 2));
	free(code);
}

/* ---- images that lie ---- */

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* A copy without a byte to spare, for the sanitizer. */
static void read_copy(const uint8_t *bytes, size_t count)
{
	uint8_t *copy = malloc(count + !count);
	struct statics statics;

	if (count)
		memcpy(copy, bytes, count);
	statics = statics_of(copy, count);
	statics_reached_by(&statics, "counts");
	statics_deinit(&statics);
	free(copy);
}

static const char *const all[] = {"statics.cubin", "statics_75.cubin", "statics_100.cubin",
	"statics_linked.cubin", "statics_heap.cubin", "statics_none.cubin", "statics_kernels.cubin",
	"statics.fatbin", "statics_lz4.fatbin", "statics_zstd.fatbin"};
#define ALL ((int)(sizeof(all) / sizeof(all[0])))

TEST_LOOP(cubin, images_may_be_cut_off, 0, ALL)
{
	load(all[_i]);
	for (size_t count = 0; count < image_bytes; count += count < 256 ? 1 : 61)
		read_copy(image, count);
}

/* Half of the changes hit the tables at the end and the headers at the beginning, where the numbers
 * are. */
TEST_LOOP(cubin, images_may_lie, 0, ALL)
{
	uint64_t state = UINT64_C(0x9e3779b97f4a7c15) + seed_of((uint32_t)_i);
	uint8_t *kept;

	load(all[_i]);
	kept = malloc(image_bytes);
	memcpy(kept, image, image_bytes);
	for (int i = 0; i < MUTATIONS / ALL; i++) {
		for (uint64_t n = next_random(&state) % 4 + 1; n; n--) {
			uint64_t range = next_random(&state) % 2 ? image_bytes : 128;
			uint64_t at = next_random(&state) % range;
			bool is_end = next_random(&state) % 4 == 0 && at < 2048;

			image[is_end ? image_bytes - 1 - at : at] = (uint8_t)next_random(&state);
		}
		read_copy(image, image_bytes);
		memcpy(image, kept, image_bytes);
	}
	free(kept);
}

/* Whole numbers in the tables of sections, symbols and relocations. */
TEST_LOOP(cubin, tables_may_lie, 0, 2)
{
	static const uint64_t values[] = {0, 1, 0xffff, UINT32_MAX, UINT64_MAX, UINT64_MAX - 23};
	Elf64_Shdr *shdr;
	size_t begins[2], ends[2];

	load(all[_i]);
	section_in(image, ".symtab", &shdr);
	begins[0] = shdr->sh_offset;
	ends[0] = begins[0] + shdr->sh_size;
	begins[1] = header_in(image).e_shoff;
	ends[1] = begins[1] + header_in(image).e_shnum * sizeof(*shdr);
	for (int table = 0; table < 2; table++)
		for (size_t at = begins[table]; at + 8 <= ends[table]; at += 4)
			for (unsigned v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
				uint64_t kept;

				memcpy(&kept, image + at, 8);
				memcpy(image + at, &values[v], v % 2 ? 8 : 4);
				read_copy(image, image_bytes);
				memcpy(image + at, &kept, 8);
			}
}

TEST_LOOP(cubin, sections_without_a_type_may_lie, 0, MISPLACED)
{
	struct statics statics;

	load("statics.cubin");
	misplace(misplaced[_i].name, misplaced[_i].as);
	statics = statics_now();
	ck_assert_str_eq(statics.more, "its image is not understood");
	statics_deinit(&statics);
}

/* An archive of one member. */
static bool is_archive(const void *bytes, size_t count)
{
	char archive[IMAGE_BYTES + 128];
	int length = snprintf(archive, sizeof(archive), "!<arch>\n%-48s%-10zu`\n", "name/", count);

	memcpy(archive + length, bytes, count);
	return image_is_archive(archive, (size_t)length + count);
}

TEST_LOOP(cubin, members_of_archives_may_lie, 0, 2)
{
	static const char *const names[] = {"statics.cubin", "statics.fatbin"};

	ck_assert(is_archive("", 0));
	ck_assert(is_archive("\x7f"
			     "EL",
		3));
	ck_assert(is_archive("names of symbols", 16));
	load(names[_i]);
	ck_assert(is_archive(image, image_bytes));
	ck_assert(!is_archive(image, image_bytes - 8));
}

/* A million relocations name the same text of 6 MiB: it is not read as often. */
TEST(cubin, texts_may_be_named_again_and_again)
{
	struct statics statics;

	build_texts(2, 6 << 20, 1 << 20, 1);
	statics = statics_now();
	ck_assert_uint_eq(bytes_of(&statics, "$str"), 6 << 20);
	statics_deinit(&statics);
}

/* Each byte is looked at once. */
TEST_LOOP(cubin, tables_may_lie_on_one_another, 0, 2)
{
	static const unsigned tables[] = {1, 2};

	build_texts(2, 1 << 10, 1 << 16, tables[_i]);
	if (_i) {
		check_more("its image is not understood");
	} else {
		struct statics statics = statics_now();

		ck_assert_msg(!statics.more, "%s", statics.more);
		statics_deinit(&statics);
	}
}

/* All of them in the same bytes: more than the file has. */
TEST(cubin, names_of_variables_may_overlap)
{
	static const char *const names[] = {"counter", "table", "own", "pointer", "pointed"};
	Elf64_Shdr *strtab;
	const char *old;

	load("statics.cubin");
	old = section_in(image, ".strtab", &strtab);
	memcpy(image + image_bytes, old, strtab->sh_size);
	for (unsigned i = 0; i < 5; i++)
		symbol(names[i])->st_name = (Elf64_Word)strtab->sh_size + i;
	strtab->sh_offset = image_bytes;
	image_bytes += strtab->sh_size;
	memset(image + image_bytes, 'v', 4000);
	image[image_bytes + 3999] = '\0';
	image_bytes += 4000;
	strtab->sh_size += 4000;
	ck_assert_uint_gt(5 * 3995, image_bytes);
	check_more("the names of its variables are too long");
}

/* In no order. */
static struct statics many_variables(void)
{
	struct statics statics = {0};
	char name[16];

	for (uint32_t i = 0; i < STATICS_MAX; i++) {
		snprintf(name, sizeof(name), "v%u", (i * 2654435761u) % STATICS_MAX);
		statics_add(&statics, name, 4);
	}
	return statics;
}

/* A fat binary of some MiB has hundreds of thousands of members, of which each may name a variable
 * that is known. */
TEST(cubin, members_may_have_many_variables)
{
	struct statics merged = {0}, many = many_variables(), one = {0};

	statics_add(&one, "v2", 4);
	statics_merge(&merged, &many);
	sorted = 0;
	for (int i = 0; i < 1000; i++)
		statics_merge(&merged, &one);
	ck_assert_uint_lt(sorted, 10 * STATICS_MAX);
	ck_assert_uint_eq(merged.count, STATICS_MAX);
	for (uint32_t i = 1; i < merged.count; i++)
		ck_assert_int_lt(strcmp(merged.variables[i - 1].name, merged.variables[i].name), 0);
	ck_assert_ptr_null(merged.more);
	statics_deinit(&one);
	statics_add(&one, "another", 4);
	statics_merge(&merged, &one);
	ck_assert_ptr_nonnull(merged.more);
	statics_deinit(&merged);
	statics_deinit(&many);
	statics_deinit(&one);
}

#define LONG 60000u

/* Two kernels, one with a long name, that have a variable's address in so many relocations by
 * turns. */
static void build_kernels(unsigned tables)
{
	static const char names[] = "\0v\0.nv.global\0.text.a\0.text.";
	const Elf64_Sym symbols[4] = {{0},
		{.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), .st_shndx = 3, .st_size = 4},
		{.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_other = 0x10, .st_shndx = 4},
		{.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_other = 0x10, .st_shndx = 5}};
	const Elf64_Rel one = {.r_info = ELF64_R_INFO(UINT64_C(1), 2)};
	size_t at, texts = sizeof(names) + LONG;
	Elf64_Shdr *sections = begin_image(6 + tables, texts + sizeof(symbols) + sizeof(one), &at);

	memcpy(image + at, names, sizeof(names));
	memset(image + at + sizeof(names) - 1, 'k', LONG);
	memcpy(image + at + texts, symbols, sizeof(symbols));
	memcpy(image + at + texts + sizeof(symbols), &one, sizeof(one));
	sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = at, .sh_size = texts};
	sections[2] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
		.sh_link = 1,
		.sh_entsize = sizeof(symbols[0]),
		.sh_offset = at + texts,
		.sh_size = sizeof(symbols)};
	sections[3] = (Elf64_Shdr){
		.sh_type = SHT_NOBITS, .sh_name = 3, .sh_flags = SHF_ALLOC | SHF_WRITE, .sh_size = 4};
	for (unsigned i = 4; i < 6; i++)
		sections[i] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
			.sh_name = i == 4 ? 14 : 22,
			.sh_flags = SHF_ALLOC | SHF_EXECINSTR,
			.sh_offset = at};
	for (unsigned i = 6; i < 6 + tables; i++)
		sections[i] = (Elf64_Shdr){.sh_type = SHT_REL,
			.sh_link = 2,
			.sh_info = 4 + i % 2,
			.sh_entsize = sizeof(one),
			.sh_offset = at + texts + sizeof(symbols),
			.sh_size = sizeof(one)};
}

TEST(cubin, names_of_kernels_may_come_again_and_again)
{
	struct statics statics;

	build_kernels(2);
	statics = statics_now();
	ck_assert_msg(!statics.more, "%s", statics.more);
	ck_assert(!statics.every);
	ck_assert_uint_eq(statics.kernel_count, 2);
	ck_assert(statics_reached_by(&statics, "a"));
	ck_assert(!statics_reached_by(&statics, "b"));
	statics_deinit(&statics);
	free(image);
	build_kernels(100);
	statics = statics_now();
	ck_assert(statics.every);
	ck_assert_uint_le(statics.kernel_count, 4);
	statics_deinit(&statics);
}

/* Every section is code, and most of the file: a file of some KiB that would be read for ever. */
TEST(cubin, sections_may_lie_on_one_another)
{
	static const char names[] = "\0.text.kernel\0.nv.constant4";
	const Elf64_Sym symbols[2] = {
		{0}, {.st_info = ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE), .st_shndx = SHN_ABS}};
	const unsigned count = 2000;
	Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, [EI_ABIVERSION] = 7},
		.e_machine = 190,
		.e_flags = 90,
		.e_shoff = sizeof(head),
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = (Elf64_Half)count,
		.e_shstrndx = 1};
	size_t tables = sizeof(head) + count * sizeof(Elf64_Shdr),
	       bytes = tables + sizeof(names) + sizeof(symbols);
	Elf64_Shdr *sections;
	struct statics statics;

	image = calloc(1, bytes);
	memcpy(image, &head, sizeof(head));
	memcpy(image + tables, names, sizeof(names));
	memcpy(image + tables + sizeof(names), symbols, sizeof(symbols));
	sections = (void *)(image + sizeof(head));
	for (unsigned i = 4; i < count; i++)
		sections[i] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
			.sh_name = 1,
			.sh_flags = SHF_ALLOC | SHF_EXECINSTR,
			.sh_size = bytes / 2};
	sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = tables, .sh_size = sizeof(names)};
	sections[2] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
		.sh_link = 1,
		.sh_entsize = sizeof(Elf64_Sym),
		.sh_offset = tables + sizeof(names),
		.sh_size = sizeof(symbols)};
	sections[3] =
		(Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_name = 14, .sh_flags = SHF_ALLOC, .sh_size = 64};
	statics = statics_of(image, bytes);
	ck_assert_ptr_nonnull(statics.more);
	statics_deinit(&statics);
	head.e_shnum = 6;
	memcpy(image, &head, sizeof(head));
	statics = statics_of(image, bytes);
	ck_assert(statics_are_none(&statics));
}

/* As in large programs: so much code, each with an instruction, and so many slots. No code goes
 * through all of them. */
TEST_LOOP(cubin, much_code_may_have_many_slots, 0, 2)
{
	static const char names[] = "\0.text.kernel\0.nv.constant4";
	static const unsigned devices[] = {90, 100};
	const Elf64_Sym symbols[2] = {
		{0}, {.st_info = ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE), .st_shndx = SHN_ABS}};
	const unsigned codes = 3000, slots = 8000;
	size_t at, code, table;
	Elf64_Shdr *sections =
		begin_image(4 + codes, sizeof(names) + sizeof(symbols) + codes * 16u + slots * 8u, &at);
	struct statics statics;

	((Elf64_Ehdr *)(void *)image)->e_flags = devices[_i];
	code = at + sizeof(names) + sizeof(symbols);
	table = code + codes * 16u;
	memcpy(image + at, names, sizeof(names));
	memcpy(image + at + sizeof(names), symbols, sizeof(symbols));
	sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = at, .sh_size = sizeof(names)};
	sections[2] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
		.sh_link = 1,
		.sh_entsize = sizeof(symbols[0]),
		.sh_offset = at + sizeof(names),
		.sh_size = sizeof(symbols)};
	sections[3] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
		.sh_name = 14,
		.sh_flags = SHF_ALLOC,
		.sh_offset = table,
		.sh_size = slots * 8u};
	for (unsigned i = 0; i < codes; i++)
		sections[4 + i] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
			.sh_name = 1,
			.sh_flags = SHF_ALLOC | SHF_EXECINSTR,
			.sh_offset = code + i * 16u,
			.sh_size = 16};
	statics = statics_now();
	ck_assert_msg(!statics.more, "%s", statics.more);
	ck_assert(statics_are_none(&statics));
}

int main(void)
{
	Suite *suite = suite_create("cubin");
	TCase *tests = tcase_create("cubin");

	tcase_set_timeout(tests, 240);
	tcase_add_checked_fixture(tests, NULL, unload);
	suite_add(tests, "cubin");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
