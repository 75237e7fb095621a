// Tests of server/backend/cuda/patch.c and server/backend/fatbin.c: what becomes of a cubin and of
// fat binaries when a function of the driver is replaced, and images that lie.

#include <dlfcn.h>
#include <elf.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "server/backend/cuda/patch.h"
#include "server/backend/fatbin.h"
#include "server/backend/image.h"
#include "tests/lib/suite.h"

#define SYMBOL "vprintf"
#define ARCH   90u

static uint8_t *cubin;
static size_t cubin_bytes;

/* What was asked for by everybody who made something larger. */
static uint64_t reallocated;

void *realloc(void *at, size_t bytes)
{
	void *(*real)(void *, size_t);

	*(void **)&real = dlsym(RTLD_NEXT, "realloc");
	reallocated += bytes;
	return real(at, bytes);
}

static const uint8_t code[256] = {1, 2, 3};
static const struct patch_function function = {
	.name = SYMBOL, .code = code, .bytes = sizeof(code), .registers = 24, .stack = 48};

static void setup(void)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/printing.cubin", getenv("FRMPS_TEST_IMAGES"));
	file = fopen(path, "rb");
	ck_assert_ptr_nonnull(file);
	cubin = malloc(1 << 16);
	cubin_bytes = fread(cubin, 1, 1 << 16, file);
	ck_assert_uint_gt(cubin_bytes, 1000);
	fclose(file);
}

static void teardown(void)
{
	free(cubin);
}

static Elf64_Shdr section(const uint8_t *image, unsigned index)
{
	Elf64_Ehdr header;
	Elf64_Shdr shdr;

	memcpy(&header, image, sizeof(header));
	ck_assert_uint_lt(index, header.e_shnum);
	memcpy(&shdr, image + header.e_shoff + index * sizeof(shdr), sizeof(shdr));
	return shdr;
}

static unsigned sections(const uint8_t *image)
{
	Elf64_Ehdr header;

	memcpy(&header, image, sizeof(header));
	return header.e_shnum;
}

static const char *section_name(const uint8_t *image, unsigned index)
{
	Elf64_Ehdr header;

	memcpy(&header, image, sizeof(header));
	return (const char *)image + section(image, header.e_shstrndx).sh_offset +
	       section(image, index).sh_name;
}

/* ---- patch ---- */

START_TEST(who_wants_it)
{
	ck_assert(patch_wants(cubin, cubin_bytes, SYMBOL));
	ck_assert(!patch_wants(cubin, cubin_bytes, "malloc"));
	ck_assert(!patch_wants(cubin, cubin_bytes, "prints"));
	ck_assert(!patch_wants(cubin, 0, SYMBOL));
	ck_assert(!patch_wants((const uint8_t *)"\x7f"
						"ELF",
		4, SYMBOL));
}
END_TEST

START_TEST(the_function_is_there)
{
	struct fatbin_bytes patched = {0};
	struct patch_function found;

	ck_assert_int_eq(patch_in(cubin, cubin_bytes, &function, &patched), CUDA_SUCCESS);
	ck_assert_int_eq(image_check(patched.at, patched.count), IMAGE_ELF);
	ck_assert(image_has_code(patched.at, patched.count, ARCH));
	ck_assert(!patch_wants(patched.at, patched.count, SYMBOL));
	ck_assert(patch_take(patched.at, patched.count, SYMBOL, &found));
	ck_assert_uint_eq(found.registers, function.registers);
	ck_assert_uint_eq(found.stack, function.stack);
	ck_assert_uint_eq(found.bytes, sizeof(code));
	ck_assert_mem_eq(found.code, code, sizeof(code));
	ck_assert_uint_eq((size_t)(found.code - patched.at) % 128, 0);
	free(patched.at);
}
END_TEST

/* The attributes of a function, by symbol index; 0 if it has none of that kind. */
static uint32_t attribute(const uint8_t *image, const char *kernel, uint8_t kind)
{
	for (unsigned i = 1; i < sections(image); i++) {
		Elf64_Shdr info = section(image, i), symbols, strings;

		if (strcmp(section_name(image, i), ".nv.info"))
			continue;
		symbols = section(image, info.sh_link);
		strings = section(image, symbols.sh_link);
		for (uint64_t at = info.sh_offset; at < info.sh_offset + info.sh_size;) {
			uint32_t words[3] = {0};
			Elf64_Sym sym;

			memcpy(words, image + at, 4);
			if ((words[0] & 0xff) == 4)
				memcpy(words, image + at, 12);
			at += 4 + ((words[0] & 0xff) == 4 ? words[0] >> 16 : 0);
			if ((words[0] >> 8 & 0xff) != kind || (words[0] & 0xff) != 4)
				continue;
			memcpy(&sym, image + symbols.sh_offset + words[1] * sizeof(sym), sizeof(sym));
			if (!strcmp((const char *)image + strings.sh_offset + sym.st_name, kernel))
				return words[2];
		}
	}
	return 0;
}
#define REGISTERS 0x2f
#define MIN_STACK 0x12

/* Kernels get the stack that the function needs, and registers only if they call it. */
START_TEST(needs_of_kernels)
{
	struct patch_function greedy = function;
	struct fatbin_bytes patched = {0};

	greedy.registers = 40;
	ck_assert_int_eq(patch_in(cubin, cubin_bytes, &greedy, &patched), CUDA_SUCCESS);
	ck_assert_uint_eq(attribute(cubin, "prints", REGISTERS), 24);
	ck_assert_uint_eq(attribute(patched.at, "prints", REGISTERS), 40);
	ck_assert_uint_eq(
		attribute(patched.at, "does_not", REGISTERS), attribute(cubin, "does_not", REGISTERS));
	ck_assert_uint_eq(
		attribute(patched.at, "prints", MIN_STACK), attribute(cubin, "prints", MIN_STACK) + 48);
	free(patched.at);
}
END_TEST

START_TEST(all_else_stays)
{
	struct fatbin_bytes patched = {0};

	ck_assert_int_eq(patch_in(cubin, cubin_bytes, &function, &patched), CUDA_SUCCESS);
	ck_assert_uint_eq(sections(patched.at), sections(cubin) + 1);
	for (unsigned i = 1; i < sections(cubin); i++) {
		Elf64_Shdr before = section(cubin, i), after = section(patched.at, i);
		const char *name = section_name(cubin, i);

		ck_assert_str_eq(section_name(patched.at, i), name);
		if (strcmp(name, ".nv.info") && strcmp(name, ".shstrtab"))
			ck_assert_mem_eq(&after, &before, sizeof(after));
		if (before.sh_type != SHT_NOBITS && before.sh_type != SHT_SYMTAB && strcmp(name, ".nv.info"))
			ck_assert_mem_eq(
				patched.at + after.sh_offset, cubin + before.sh_offset, before.sh_size);
	}
	ck_assert_str_eq(section_name(patched.at, sections(cubin)), ".text." SYMBOL);
	free(patched.at);
}
END_TEST

/* An index that says that another one counts is none. */
START_TEST(names_by_the_long_way)
{
	uint8_t *copy = malloc(cubin_bytes);
	struct fatbin_bytes patched = {0};
	struct patch_function found;
	Elf64_Ehdr header;
	Elf64_Shdr first;

	memcpy(copy, cubin, cubin_bytes);
	memcpy(&header, copy, sizeof(header));
	memcpy(&first, copy + header.e_shoff, sizeof(first));
	first.sh_link = header.e_shstrndx;
	header.e_shstrndx = SHN_XINDEX;
	memcpy(copy + header.e_shoff, &first, sizeof(first));
	memcpy(copy, &header, sizeof(header));
	ck_assert_int_eq(image_check(copy, cubin_bytes), IMAGE_ELF);
	ck_assert(!patch_wants(copy, cubin_bytes, SYMBOL));
	ck_assert(!patch_take(copy, cubin_bytes, "prints", &found));
	ck_assert_int_eq(patch_in(copy, cubin_bytes, &function, &patched), CUDA_ERROR_INVALID_IMAGE);
	free(copy);
}
END_TEST

/* Attributes that reach over the whole file, or all of it but for the names: they would be copied
 * with what they lie on, the table of sections for example. */
TEST_LOOP(patch, sections_that_lie_on_each_other, 0, 2)
{
	struct fatbin_bytes patched = {0};
	Elf64_Ehdr header;
	Elf64_Shdr shdr;
	unsigned info = 1;

	memcpy(&header, cubin, sizeof(header));
	while (strcmp(section_name(cubin, info), ".nv.info"))
		info++;
	shdr = section(cubin, info);
	shdr.sh_offset = 0;
	shdr.sh_size = cubin_bytes - (_i ? section(cubin, header.e_shstrndx).sh_size : 0);
	memcpy(cubin + header.e_shoff + info * sizeof(shdr), &shdr, sizeof(shdr));
	ck_assert_int_eq(image_check(cubin, cubin_bytes), IMAGE_ELF);
	ck_assert_int_eq(patch_in(cubin, cubin_bytes, &function, &patched), CUDA_ERROR_INVALID_IMAGE);
}

/* Whatever is in it: no look beyond the image, and no success that is none. */
START_TEST(spoilt_images)
{
	uint32_t x = 1;

	for (int round = 0; round < 20000; round++) {
		size_t size = cubin_bytes;
		struct fatbin_bytes patched = {0};
		struct patch_function found;
		uint8_t *copy;

		x = x * UINT32_C(1103515245) + 12345;
		if (round % 4 == 0)
			size = (x >> 8) % cubin_bytes;
		copy = malloc(size + !size);
		memcpy(copy, cubin, size);
		for (int i = 0; size && i < 4; i++) {
			x = x * UINT32_C(1103515245) + 12345;
			/* Mostly in the tables, which are at the end. */
			copy[i % 2 ? (x >> 8) % size : size - 1 - (x >> 8) % (size < 3000 ? size : 3000)] =
				(uint8_t)(x >> 24);
		}
		patch_take(copy, size, "prints", &found);
		if (!patch_in(copy, size, &function, &patched))
			ck_assert_int_eq(image_check(patched.at, patched.count), IMAGE_ELF);
		free(patched.at);
		free(copy);
	}
}
END_TEST

/* ---- fat binaries ---- */

static struct fatbin_bytes fat;
static size_t fat_room;

static void add(const void *at, size_t count)
{
	/* Not for each of thousands of members. */
	if (!fat.at || fat.count + count > fat_room) {
		fat_room = 2 * (fat.count + count);
		fat.at = realloc(fat.at, fat_room);
	}
	memcpy(fat.at + fat.count, at, count);
	fat.count += count;
}

static void begin_fat(void)
{
	fat = (struct fatbin_bytes){0};
	add(&(struct fatbin_header){FATBIN_MAGIC, 1, sizeof(struct fatbin_header), 0},
		sizeof(struct fatbin_header));
}

static void add_contents(unsigned arch, uint64_t packing, const uint8_t *contents, size_t bytes)
{
	size_t room = ZSTD_compressBound(bytes) + LZ4_compressBound((int)bytes), count = bytes;
	uint8_t *payload = calloc(1, room + 8);
	struct fatbin_target target = {.arch = arch, .flags = 0x11 | packing};
	struct fatbin_entry entry = {FATBIN_KIND_ELF, 257, sizeof(entry) + sizeof(target), 0};

	if (packing == FATBIN_FLAG_ZSTD)
		count = ZSTD_compress(payload, room, contents, bytes, 1);
	else if (packing == FATBIN_FLAG_LZ4)
		count = (size_t)LZ4_compress_default(
			(const char *)contents, (char *)payload, (int)bytes, (int)room);
	else
		memcpy(payload, contents, bytes);
	if (packing) {
		target.packed_bytes = (uint32_t)count;
		target.unpacked_bytes = bytes;
	}
	entry.payload_bytes = (count + 7) & ~(uint64_t)7;
	add(&entry, sizeof(entry));
	add(&target, sizeof(target));
	add(payload, entry.payload_bytes);
	free(payload);
}

static void add_member(unsigned arch, uint64_t packing)
{
	add_contents(arch, packing, cubin, cubin_bytes);
}

static void end_fat(void)
{
	uint64_t payload = fat.count - sizeof(struct fatbin_header);

	/* A look behind its end is noticed. */
	fat.at = realloc(fat.at, fat.count);
	memcpy(fat.at + offsetof(struct fatbin_header, payload_bytes), &payload, sizeof(payload));
	ck_assert_int_eq(image_check(fat.at, fat.count), IMAGE_FATBIN);
}

/* Of as many members for the device. */
static void make_fat(int members, uint64_t packing)
{
	begin_fat();
	for (int i = 0; i < members; i++)
		add_member(ARCH, packing);
	end_fat();
}

static int visits;

static CUresult look(void *context, const uint8_t *at, size_t bytes, struct fatbin_bytes *ret)
{
	visits++;
	ck_assert_uint_ge(bytes, cubin_bytes);
	ck_assert_mem_eq(at, cubin, cubin_bytes);
	return context ? patch_in(at, cubin_bytes, context, ret) : CUDA_SUCCESS;
}

static const uint64_t packings[] = {0, FATBIN_FLAG_ZSTD, FATBIN_FLAG_LZ4};

START_TEST(members_are_shown)
{
	struct fatbin_bytes out = {0};

	begin_fat();
	add_member(80, FATBIN_FLAG_ZSTD);
	for (int i = 0; i < 3; i++)
		add_member(ARCH, packings[i]);
	add_member(100, 0);
	end_fat();
	visits = 0;
	ck_assert_int_eq(fatbin_rewrite(fat.at, ARCH, UINT64_MAX, look, NULL, &out), CUDA_SUCCESS);
	ck_assert_int_eq(visits, 3);
	ck_assert_ptr_null(out.at);
	free(fat.at);
}
END_TEST

static unsigned count_members(const uint8_t *at, size_t bytes, unsigned arch, uint64_t flags)
{
	struct fatbin_target target;
	struct fatbin_entry entry;
	unsigned found = 0;

	for (size_t i = sizeof(struct fatbin_header); i < bytes;
		i += entry.header_bytes + entry.payload_bytes) {
		memcpy(&entry, at + i, sizeof(entry));
		memcpy(&target, at + i + sizeof(entry), sizeof(target));
		found += target.arch == arch && target.flags == flags;
	}
	return found;
}

START_TEST(members_are_replaced)
{
	const struct patch_function *context = &function;
	struct fatbin_bytes out = {0}, again = {0};

	begin_fat();
	add_member(80, FATBIN_FLAG_ZSTD);
	for (int i = 0; i < 3; i++)
		add_member(ARCH, packings[i]);
	add_member(80, FATBIN_FLAG_LZ4);
	end_fat();
	ck_assert_int_eq(fatbin_rewrite(fat.at, ARCH, UINT64_MAX, look, (void *)(uintptr_t)context, &out),
		CUDA_SUCCESS);
	ck_assert_int_eq(image_check(out.at, out.count), IMAGE_FATBIN);
	ck_assert(image_has_code(out.at, out.count, ARCH));
	ck_assert_uint_eq(count_members(out.at, out.count, ARCH, 0x11), 3);
	ck_assert_uint_eq(count_members(out.at, out.count, 80, 0x11 | FATBIN_FLAG_ZSTD), 1);
	ck_assert_uint_eq(count_members(out.at, out.count, 80, 0x11 | FATBIN_FLAG_LZ4), 1);
	/* Those of the other device can still be read. */
	visits = 0;
	ck_assert_int_eq(fatbin_rewrite(out.at, 80, UINT64_MAX, look, NULL, &again), CUDA_SUCCESS);
	ck_assert_int_eq(visits, 2);
	free(fat.at);
	free(out.at);
}
END_TEST

START_TEST(members_that_lie)
{
	static const uint64_t sizes[] = {0, 1, UINT64_MAX, UINT64_C(1) << 31, 100};

	for (int packing = 1; packing < 3; packing++) {
		size_t entry = sizeof(struct fatbin_header), target = entry + sizeof(struct fatbin_entry);
		struct fatbin_bytes out = {0};

		make_fat(1, packings[packing]);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			memcpy(fat.at + target + offsetof(struct fatbin_target, unpacked_bytes), &sizes[i],
				8);
			ck_assert_int_eq(fatbin_rewrite(fat.at, ARCH, UINT64_MAX, look, NULL, &out),
				CUDA_ERROR_INVALID_IMAGE);
		}
		ck_assert_int_eq(image_check(fat.at, fat.count), IMAGE_FATBIN);
		memcpy(fat.at + target + offsetof(struct fatbin_target, unpacked_bytes),
			&(uint64_t){cubin_bytes}, 8);
		memcpy(fat.at + target, &(uint32_t){UINT32_MAX}, 4);
		ck_assert_int_eq(
			fatbin_rewrite(fat.at, ARCH, UINT64_MAX, look, NULL, &out), CUDA_ERROR_INVALID_IMAGE);
		ck_assert_int_eq(image_check(fat.at, fat.count), IMAGE_BAD);
		ck_assert_ptr_null(out.at);
		free(fat.at);
	}
}
END_TEST

static CUresult count(void *context, const uint8_t *at, size_t bytes, struct fatbin_bytes *ret)
{
	(void)context;
	(void)at;
	(void)bytes;
	(void)ret;
	visits++;
	return CUDA_SUCCESS;
}

/* What is made of them is not copied for each of them. */
START_TEST(members_may_be_very_many)
{
	struct patch_function context = function;
	struct fatbin_bytes out = {0};

	make_fat(500, 0);
	reallocated = 0;
	ck_assert_int_eq(fatbin_rewrite(fat.at, ARCH, UINT64_MAX, look, &context, &out), CUDA_SUCCESS);
	ck_assert_uint_gt(out.count, fat.count);
	ck_assert_uint_lt(reallocated, 8 * out.count);
	free(fat.at);
	free(out.at);
}
END_TEST

/* Each gets a function that is longer than it is. */
START_TEST(members_may_want_more_than_they_are)
{
	uint8_t *long_code = calloc(1, 1 << 20);
	struct patch_function context = function;
	struct fatbin_bytes out = {0};

	context.code = long_code;
	context.bytes = 1 << 20;
	make_fat(8, 0);
	ck_assert_int_eq(fatbin_rewrite(fat.at, ARCH, UINT64_MAX, look, &context, &out), CUDA_SUCCESS);
	free(out.at);
	free(fat.at);
	out = (struct fatbin_bytes){0};
	make_fat(100, 0);
	visits = 0;
	ck_assert_int_eq(
		fatbin_rewrite(fat.at, ARCH, UINT64_MAX, look, &context, &out), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_lt(visits, 20);
	ck_assert_ptr_null(out.at);
	free(fat.at);
	free(long_code);
}
END_TEST

/* Each costs something, however small it is. Those for other devices do not count. */
TEST_LOOP(patch, members_may_be_too_many, 0, 2)
{
	static const unsigned more[] = {0, 1};
	static const CUresult codes[] = {CUDA_SUCCESS, CUDA_ERROR_INVALID_IMAGE};
	struct fatbin_bytes out = {0};

	begin_fat();
	for (unsigned i = 0; i < FATBIN_MEMBERS_MAX + more[_i]; i++)
		add_member(ARCH, 0);
	for (unsigned i = 0; i < 10; i++)
		add_member(80, 0);
	end_fat();
	visits = 0;
	ck_assert_int_eq(fatbin_rewrite(fat.at, ARCH, UINT64_MAX, count, NULL, &out), codes[_i]);
	ck_assert_int_eq(visits, FATBIN_MEMBERS_MAX);
	ck_assert_ptr_null(out.at);
	free(fat.at);
}

/* Of two members that are nothing but zeros. Return: bytes that they unpack to */
static uint64_t make_zeros(void)
{
	const size_t bytes = 24 << 20;
	uint8_t *zeros = calloc(1, bytes), *copy;
	size_t member;

	ck_assert_ptr_nonnull(zeros);
	begin_fat();
	add_contents(ARCH, FATBIN_FLAG_ZSTD, zeros, bytes);
	free(zeros);
	member = fat.count - sizeof(struct fatbin_header);
	copy = malloc(member);
	memcpy(copy, fat.at + sizeof(struct fatbin_header), member);
	add(copy, member);
	free(copy);
	/* The driver does not unpack this one either. */
	add_contents(80, FATBIN_FLAG_ZSTD, (const uint8_t *)"code", 4);
	end_fat();
	return 2 * bytes;
}

/* A small file may claim more than a machine has, and a large one may have no pages. */
START_TEST(nothing_is_unpacked_that_is_more_than_the_room)
{
	uint64_t all = make_zeros();
	struct fatbin_bytes out = {0};

	ck_assert_uint_lt(fat.count, 64 << 10);
	ck_assert_uint_eq(fatbin_unpacks_to(fat.at, ARCH), all);
	ck_assert_uint_eq(fatbin_unpacks_to(fat.at, 80), 4);
	visits = 0;
	ck_assert_int_eq(fatbin_rewrite(fat.at, ARCH, all - 1, count, NULL, &out), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(visits, 0);
	ck_assert_int_eq(fatbin_rewrite(fat.at, ARCH, all, count, NULL, &out), CUDA_SUCCESS);
	ck_assert_int_eq(visits, 2);
	ck_assert_int_eq(fatbin_code(fat.at, ARCH, all / 2 - 1, &out), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_ptr_null(out.at);
	ck_assert_int_eq(fatbin_code(fat.at, ARCH, all / 2, &out), CUDA_SUCCESS);
	ck_assert_uint_eq(out.count, all / 2);
	free(out.at);
	free(fat.at);
}
END_TEST

/* Whoever has no limit: compressors take so many bytes at once. */
START_TEST(no_member_unpacks_to_more_than_there_may_be)
{
	struct fatbin_target *target;

	begin_fat();
	add_contents(ARCH, FATBIN_FLAG_ZSTD, (const uint8_t *)"code", 4);
	end_fat();
	ck_assert_int_eq(image_check(fat.at, fat.count), IMAGE_FATBIN);
	target = (void *)(fat.at + sizeof(struct fatbin_header) + sizeof(struct fatbin_entry));
	target->unpacked_bytes = FATBIN_UNPACKED_MOST;
	ck_assert_int_eq(image_check(fat.at, fat.count), IMAGE_BAD);
	free(fat.at);
}
END_TEST

static uint8_t *read_image(const char *name, size_t *ret_bytes)
{
	uint8_t *image = malloc(1 << 16);
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", getenv("FRMPS_TEST_IMAGES"), name);
	file = fopen(path, "rb");
	ck_assert_ptr_nonnull(file);
	*ret_bytes = fread(image, 1, 1 << 16, file);
	fclose(file);
	return image;
}

/* What kernels set conditions of graphs with (server/backend/cuda/condition.c). */
START_TEST(a_setter_of_conditions_is_put_in)
{
	const char *name = "cudaGraphSetConditional";
	struct patch_function setter;
	struct fatbin_bytes patched;
	size_t bytes, setter_bytes;
	uint8_t *image = read_image("deciding.cubin", &bytes);
	uint8_t *ours = read_image("condition_setter.cubin", &setter_bytes);

	ck_assert(patch_wants(image, bytes, name));
	ck_assert(patch_take(ours, setter_bytes, name, &setter));
	ck_assert_uint_le(setter.registers, 24);
	ck_assert_int_eq(patch_in(image, bytes, &setter, &patched), CUDA_SUCCESS);
	ck_assert(!patch_wants(patched.at, patched.count, name));
	ck_assert_int_eq(image_check(patched.at, patched.count), IMAGE_ELF);
	free(patched.at);
	free(ours);
	free(image);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {who_wants_it, the_function_is_there, needs_of_kernels, all_else_stays,
		names_by_the_long_way, spoilt_images, members_are_shown, members_are_replaced,
		members_that_lie, members_may_be_very_many, members_may_want_more_than_they_are,
		nothing_is_unpacked_that_is_more_than_the_room, no_member_unpacks_to_more_than_there_may_be,
		a_setter_of_conditions_is_put_in};
	Suite *suite = suite_create("patch");
	TCase *all = suite_case(suite, "patch");

	tcase_add_checked_fixture(all, setup, teardown);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(all, tests[i]);
	suite_add(all, "patch");
	return suite_run(suite);
}
