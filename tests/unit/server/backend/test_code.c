// Where kernels' code lies, how long it is, and what images say of its launches.

#include "server/backend/cuda/code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"
#include "tests/unit/server/backend/image_bed.h"

#define OURS   ((struct backend_module *)(uintptr_t)0x4711)
#define THEIRS ((struct backend_module *)(uintptr_t)0x4712)

static struct code_facts facts;

static void forget(void)
{
	code_facts_deinit(&facts);
	unload();
}

TEST(code, lengths_are_those_of_the_image)
{
	load("printing.cubin");
	code_facts_add(&facts, image, image_bytes);
	code_facts_sort(&facts);
	ck_assert_uint_eq(code_length(&facts, "does_not"), 0x100);
	ck_assert_uint_eq(code_length(&facts, "prints"), 0x200);
	ck_assert_uint_eq(code_length(&facts, "neither"), 0);
	/* Twice is the same, and what is no image adds nothing. */
	code_facts_add(&facts, image, image_bytes);
	code_facts_add(&facts, image, 16);
	code_facts_sort(&facts);
	ck_assert_uint_eq(code_length(&facts, "prints"), 0x200);
}

/* The driver may load any of them. */
TEST(code, of_several_images_the_shortest_counts)
{
	load("printing.cubin");
	code_facts_add(&facts, image, image_bytes);
	for (size_t i = 0; i + sizeof(uint64_t) <= image_bytes; i += sizeof(uint64_t))
		if (*(uint64_t *)(void *)(image + i) == 0x200)
			*(uint64_t *)(void *)(image + i) = 0x180;
	code_facts_add(&facts, image, image_bytes);
	code_facts_sort(&facts);
	ck_assert_uint_eq(code_length(&facts, "prints"), 0x180);
	ck_assert_uint_eq(code_length(&facts, "does_not"), 0x100);
}

static bool is_shape(const char *kernel, uint32_t x, uint32_t y, uint32_t cluster)
{
	struct backend_shape shape = code_shape(&facts, kernel);

	return shape.block[0] == x && shape.block[1] == y && shape.cluster_most == cluster;
}

TEST(code, shapes_are_those_of_the_image)
{
	load("shaped.cubin");
	code_facts_add(&facts, image, image_bytes);
	code_facts_sort(&facts);
	ck_assert(is_shape("one_size", 32, 2, 0));
	ck_assert(is_shape("small_clusters", 0, 0, 4));
	ck_assert(is_shape("neither", 0, 0, 0));
	ck_assert(!code_shape(&facts, "one_size").counts_clusters);
	unload();
	load("clustered.cubin");
	code_facts_add(&facts, image, image_bytes);
	code_facts_sort(&facts);
	ck_assert(is_shape("counted_in_clusters", 64, 1, 0));
	ck_assert(code_shape(&facts, "counted_in_clusters").counts_clusters);
}

/* The driver may load any of them. */
TEST(code, shapes_that_differ_are_none)
{
	const uint32_t size[3] = {32, 2, 1};

	load("shaped.cubin");
	code_facts_add(&facts, image, image_bytes);
	for (size_t i = 0; i + sizeof(size) <= image_bytes; i += 4)
		if (!memcmp(image + i, size, sizeof(size)))
			image[i]++;
	code_facts_add(&facts, image, image_bytes);
	code_facts_sort(&facts);
	ck_assert(is_shape("one_size", 0, 0, 0));
	ck_assert(is_shape("small_clusters", 0, 0, 4));
}

TEST(code, code_without_bytes_has_no_length)
{
	Elf64_Shdr *section;

	load("printing.cubin");
	section_in(image, ".text.prints", &section);
	section->sh_type = SHT_NOBITS;
	section->sh_size = UINT64_C(1) << 40;
	code_facts_add(&facts, image, image_bytes);
	code_facts_sort(&facts);
	ck_assert_uint_eq(code_length(&facts, "prints"), 0);
	ck_assert_uint_eq(code_length(&facts, "does_not"), 0x100);
}

#define NAME_BYTES 60000u

/* So many sections of code, all of one long name. */
static void build_code(unsigned sections)
{
	size_t at;
	Elf64_Shdr *table = begin_image(2 + sections, NAME_BYTES, &at);

	memset(image + at + 1, 'k', NAME_BYTES - 2);
	memcpy(image + at + 1, ".text.", 6);
	table[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = at, .sh_size = NAME_BYTES};
	for (unsigned i = 0; i < sections; i++)
		table[2 + i] =
			(Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_name = 1, .sh_offset = at, .sh_size = 16};
}

/* A file of 64 MiB would have names of 64 GiB, all of which are gone through. */
TEST(code, names_of_kernels_may_overlap)
{
	build_code(1);
	code_facts_add(&facts, image, image_bytes);
	ck_assert_uint_eq(facts.count, 1);
	forget();
	build_code(1000);
	code_facts_add(&facts, image, image_bytes);
	ck_assert_uint_le(facts.count, image_bytes / NAME_BYTES);
}

TEST(code, an_address_is_in_one_kernel_or_in_none)
{
	struct code code;

	ck_assert(!code_find(0x1000, &code));
	/* Not in their order, and with a gap. */
	code_note(&(struct code){.module = THEIRS, .entry = 0x2000, .bytes = 0x100}, "second");
	code_note(&(struct code){.module = OURS, .entry = 0x1000, .bytes = 0x200}, "first");
	code_note(&(struct code){.module = OURS, .entry = 0x3000, .bytes = 0}, "third");
	ck_assert(code_find(0x1000, &code) && code.module == OURS);
	ck_assert(code_find(0x11ff, &code) && !strcmp(code.kernel, "first"));
	ck_assert(!code_find(0x1200, &code) && !code_find(0xfff, &code));
	ck_assert(code_find(0x20ff, &code) && code.module == THEIRS);
	/* One whose length is not known has an entry alone. */
	ck_assert(!code_find(0x3000, &code) && code_find_entry(0x3000, &code));
	ck_assert(!code_find_entry(0x2010, &code));
	code_forget(OURS);
	ck_assert(!code_find(0x1000, &code) && !code_find_entry(0x3000, &code));
	ck_assert(code_find_entry(0x2000, &code) && code.bytes == 0x100);
	code_forget(THEIRS);
	ck_assert(!code_find(0x2000, &code));
}

/* An image may say anything. What faults is overwritten: not the code of others. */
TEST(code, a_kernel_ends_where_the_next_one_begins)
{
	struct code code;

	code_note(&(struct code){.module = OURS, .entry = 0x1000, .bytes = UINT64_MAX}, "first");
	code_note(&(struct code){.module = THEIRS, .entry = 0x2000, .bytes = 0x100}, "second");
	ck_assert(code_find_entry(0x1000, &code));
	ck_assert_uint_eq(code.bytes, 0x1000);
	ck_assert(code_find(0x1fff, &code));
	ck_assert_ptr_eq(code.module, OURS);
	ck_assert_uint_eq(code.bytes, 0x1000);
	ck_assert(code_find_entry(0x2000, &code));
	ck_assert_uint_eq(code.bytes, 0x100);
	forget();
}

TEST(code, there_is_room_for_any_number)
{
	struct code code;

	for (uint64_t i = 1000; i > 0; i--)
		code_note(&(struct code){.module = OURS, .entry = i << 12, .bytes = 0x1000}, "kernel");
	for (uint64_t i = 1; i <= 1000; i++)
		ck_assert(code_find((i << 12) + 0xfff, &code) && code.entry == i << 12);
	code_forget(OURS);
	ck_assert(!code_find(0x1000, &code));
}

int main(void)
{
	Suite *suite = suite_create("server/backend/code");
	TCase *tests = tcase_create("code");

	tcase_add_checked_fixture(tests, NULL, forget);
	suite_add(tests, "code");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
