// Dumps that the driver wrote (dumps/, trimmed by dumps/trim.py), whole and damaged.

#include "server/backend/cuda/dump.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"
#include "tests/unit/server/backend/dump_bed.h"

static const struct {
	const char *file, *kernel;
	uint32_t exception, sm;
	uint64_t module, function, grid, pc;
	bool has_block, strayed, may_be_stack;
} known[] = {
	{"trap", "culprit_trap", 0, 114, 0x55fbc7cdd7a0, 0x55fbc7d14a10, 286, 0, true, false, false},
	{"write", "culprit_write", 14, 114, 0x55e2305cf700, 0, 0, 0x7f66ff7a01b0, false, false, false},
	{"jump", "culprit_jump", 4, 114, 0x564e272cc740, 0x564e272ea390, 286, 0x7f1e0e270000, true, true,
		false},
	/* Beside the blocks of others. */
	{"stack", "culprit_stack", 5, 126, 0x56212670f660, 0x562126735990, 286, 0x7f498b7a02c0, true, false,
		true},
};
#define KNOWN ((int)(sizeof(known) / sizeof(*known)))

START_TEST(kernels_that_faulted_are_named)
{
	struct dump_report report;
	size_t size;
	uint8_t *bytes = dump_load(known[_i].file, &size);
	const struct dump_kernel *kernel = &report.kernels[0];

	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert_uint_eq(report.count, 1);
	ck_assert(!report.more);
	ck_assert_str_eq(kernel->name, known[_i].kernel);
	ck_assert_uint_eq(kernel->module, known[_i].module);
	ck_assert_uint_eq(kernel->function, known[_i].function);
	ck_assert_uint_eq(kernel->grid, known[_i].grid);
	ck_assert_uint_eq(kernel->exception, known[_i].exception);
	ck_assert_uint_eq(kernel->sm, known[_i].sm);
	ck_assert(kernel->has_block == known[_i].has_block && kernel->strayed == known[_i].strayed);
	ck_assert(kernel->may_be_stack == known[_i].may_be_stack);
	if (known[_i].pc)
		ck_assert_uint_eq(kernel->pc, known[_i].pc);
	if (kernel->has_block)
		ck_assert(kernel->block[0] == 1 && kernel->block[1] == 0 && kernel->block[2] == 0);
	free(bytes);
}
END_TEST

/* In memory of exactly its size, so that the address build sees every byte too many. */
START_TEST(no_dump_that_ends_early_is_read_beyond)
{
	struct dump_report report;
	size_t size;
	uint8_t *whole = dump_load(known[_i].file, &size), *part;

	for (size_t length = 0; length < size; length += length < 256 ? 1 : 61) {
		part = malloc(length ? length : 1);
		memcpy(part, whole, length);
		/* Its section headers are at the end. */
		ck_assert_int_eq(dump_read(part, length, &report), -EBADMSG);
		free(part);
	}
	free(whole);
}
END_TEST

static bool is_sane(const struct dump_report *report)
{
	for (uint32_t i = 0; i < report->count; i++)
		if (strnlen(report->kernels[i].name, sizeof(report->kernels[i].name)) ==
			sizeof(report->kernels[i].name))
			return false;
	return report->count <= DUMP_KERNELS_MAX;
}

/* Every field of what is structure, with values that make trouble. */
START_TEST(no_damage_leads_out_of_the_dump)
{
	static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	struct dump_report report;
	size_t size;
	uint8_t *bytes = dump_load(known[_i].file, &size);

	for (size_t at = 0; at < size; at++) {
		uint8_t kept = bytes[at];

		for (size_t v = 0; v < sizeof(values); v++) {
			bytes[at] = values[v];
			dump_read(bytes, size, &report);
			ck_assert(is_sane(&report));
		}
		bytes[at] = kept;
	}
	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	free(bytes);
}
END_TEST

/* Whole words at a time: offsets and sizes that wrap around. */
START_TEST(no_huge_number_leads_out_of_the_dump)
{
	static const uint64_t values[] = {
		0, 1, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63};
	struct dump_report report;
	size_t size;
	uint8_t *bytes = dump_load(known[_i].file, &size);

	for (size_t at = 0; at + 8 <= size; at += 4) {
		uint64_t kept;

		memcpy(&kept, bytes + at, 8);
		for (size_t v = 0; v < sizeof(values) / sizeof(*values); v++) {
			memcpy(bytes + at, &values[v], 8);
			dump_read(bytes, size, &report);
			ck_assert(is_sane(&report));
		}
		memcpy(bytes + at, &kept, 8);
	}
	free(bytes);
}
END_TEST

/* A module that the dump does not list is nobody's. */
START_TEST(a_module_that_is_not_listed_stays_unknown)
{
	struct dump_report report;
	size_t size;
	uint8_t *bytes = dump_load("write", &size);

	dump_find_section(bytes, 0x80000010)->sh_size = 8;
	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert_uint_eq(report.kernels[0].module, 0);
	free(bytes);
}
END_TEST

/* More sections than the head can count. */
START_TEST(many_sections_are_counted_in_the_first)
{
	struct dump_report report;
	size_t size;
	uint8_t *bytes = dump_load("trap", &size);
	Elf64_Ehdr *head = (Elf64_Ehdr *)(void *)bytes;
	Elf64_Shdr *first = (Elf64_Shdr *)(void *)(bytes + head->e_shoff);

	first->sh_size = head->e_shnum;
	head->e_shnum = 0;
	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert_str_eq(report.kernels[0].name, "culprit_trap");
	first->sh_size++;
	ck_assert_int_eq(dump_read(bytes, size, &report), -EBADMSG);
	free(bytes);
}
END_TEST

/* An SM that still speaks of an exception of which no warp is left, beside blocks of others: they are not it.
 */
START_TEST(who_is_on_the_same_multiprocessor_is_not_blamed)
{
	struct dump_report report;
	size_t size;
	uint8_t *bytes = dump_load("stack", &size);
	Elf64_Shdr *sms = dump_find_section(bytes, 0x8000000b);
	uint8_t *sm = bytes + sms->sh_offset;
	const uint32_t says[4] = {0, 0, 14, 1};
	const uint64_t nowhere = 0x10;

	memcpy(sm, says, sizeof(says));
	memcpy(sm + 16, &nowhere, sizeof(nowhere));
	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert_uint_eq(report.count, 2);
	ck_assert_str_eq(report.kernels[0].name, "culprit_stack");
	ck_assert_uint_eq(report.kernels[1].module, 0);
	ck_assert_uint_eq(report.kernels[1].sm, 0);
	ck_assert(report.kernels[1].strayed);
	free(bytes);
}
END_TEST

/* On a full device the place of a warp that has ended is taken at once, and who took it seems to have faulted. */
START_TEST(who_took_the_place_of_the_culprit_is_not_blamed)
{
	struct dump_report report;
	size_t size;
	uint8_t *bytes = dump_load_without_culprit(&size);

	dump_say_of_sm(bytes, 0, CULPRITS_PC);
	dump_say_of_warp(bytes, CULPRITS_PC, _i);
	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert_uint_eq(report.count, 1);
	ck_assert(!report.more);
	ck_assert_str_eq(report.kernels[0].name, "culprit_stack");
	ck_assert_uint_eq(report.kernels[0].module, 0x56212670f660);
	ck_assert_uint_eq(report.kernels[0].pc, CULPRITS_PC);
	ck_assert_uint_eq(report.kernels[0].exception, 14);
	ck_assert(!report.kernels[0].has_block && !report.kernels[0].strayed);
	free(bytes);
}
END_TEST

/* Its own instruction, but the multiprocessor says another one's: nobody can tell. */
START_TEST(where_warp_and_multiprocessor_disagree_there_is_more)
{
	struct dump_report report;
	size_t size;
	uint8_t *bytes = dump_load_without_culprit(&size);

	dump_say_of_sm(bytes, 0, CULPRITS_PC);
	dump_say_of_warp(bytes, BYSTANDERS_PC, true);
	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert(report.more);
	dump_say_of_sm(bytes, 0, BYSTANDERS_PC);
	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert_uint_eq(report.count, 1);
	ck_assert(!report.more && report.kernels[0].has_block);
	ck_assert_uint_eq(report.kernels[0].module, BYSTANDERS_MODULE);
	free(bytes);
}
END_TEST

/* ---- dumps made here ---- */

#define CODE	 UINT64_C(0x7f0000000000) /* of the program that is there; the other's is CODE_FAR behind */
#define CODE_FAR UINT64_C(0x10000)
#define WARPS	 32u
#define LANES	 32u
/* Of the images, all in one: as many as those of a large library's modules have. */
#define IMAGE_SECTIONS 20000u

static void write_head(uint8_t *at, uint16_t type, uint64_t table, uint16_t count)
{
	Elf64_Ehdr head = {.e_type = type,
		.e_machine = 0xbe,
		.e_shoff = table,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = count,
		.e_flags = 90 << 8}; /* the architecture */

	memcpy(head.e_ident, ELFMAG, SELFMAG);
	head.e_ident[EI_ABIVERSION] = 8;
	head.e_ident[EI_CLASS] = ELFCLASS64;
	head.e_ident[EI_DATA] = ELFDATA2LSB;
	memcpy(at, &head, sizeof(head));
}

/* Appends a section. */
static void put_section(uint8_t *file, uint64_t *size, uint32_t type, uint32_t link, uint32_t info,
	const void *bytes, uint64_t count, uint64_t entry)
{
	Elf64_Ehdr *head = (Elf64_Ehdr *)(void *)file;
	Elf64_Shdr section = {.sh_type = type,
		.sh_offset = *size,
		.sh_size = count * entry,
		.sh_link = link,
		.sh_info = info,
		.sh_entsize = entry};

	memcpy(file + head->e_shoff + head->e_shnum++ * sizeof(section), &section, sizeof(section));
	memcpy(file + *size, bytes, count * entry);
	*size += count * entry;
}

struct code {
	uint64_t low, high;
};

/* Its code is in the last section, zeros behind the two instructions. */
static void put_image(uint8_t *file, uint64_t *size, uint16_t count, uint32_t module, uint64_t address,
	const struct code *code)
{
	uint64_t bytes = sizeof(Elf64_Ehdr) + count * sizeof(Elf64_Shdr);
	Elf64_Shdr section = {.sh_type = SHT_PROGBITS,
		.sh_flags = SHF_EXECINSTR,
		.sh_addr = address,
		.sh_offset = bytes,
		.sh_size = 4096};
	uint8_t *image = calloc(1, bytes + section.sh_size);

	write_head(image, ET_EXEC, sizeof(Elf64_Ehdr), count);
	memcpy(image + bytes - sizeof(section), &section, sizeof(section));
	memcpy(image + bytes, code, 2 * sizeof(*code));
	put_section(file, size, 0x80000007, 1, module, image, bytes + section.sh_size, 1);
	free(image);
}

/* All warps of a block seem to have faulted in the code of module 0xb. */
struct full {
	uint64_t module; /* that they are of */
	uint32_t exception;
	bool second; /* the last one at the second instruction */
	struct code code[2];
};

static uint8_t *make_full_device(const struct full *full, uint64_t *ret_size)
{
	const uint64_t modules[] = {0xa, 0xb}, grid[] = {7, 0, 0xf, CODE, full->module, 0},
		       pc = CODE + CODE_FAR;
	const uint64_t sm[] = {0, full->exception | UINT64_C(1) << 32, pc}, block[] = {7, 0, 0},
		       second = pc + 16;
	const uint32_t one = 1;
	uint8_t *file = calloc(1, 4 << 20), warps[WARPS][32] = {0}, lanes[LANES][40] = {0};
	uint64_t size = sizeof(Elf64_Ehdr) + 64 * sizeof(Elf64_Shdr);

	for (unsigned i = 0; i < WARPS; i++) {
		memcpy(warps[i], full->second && i == WARPS - 1 ? &second : &pc, sizeof(pc));
		memcpy(warps[i] + 24, &one, sizeof(one));
	}
	for (unsigned i = 0; i < LANES; i++)
		memcpy(lanes[i] + 32, &full->exception, sizeof(full->exception));
	write_head(file, ET_CORE, sizeof(Elf64_Ehdr), 1);
	put_section(file, &size, 0x80000010, 0, 0, modules, 2, 8);
	put_image(file, &size, IMAGE_SECTIONS, 0, CODE, full->code);
	put_image(file, &size, 2, 1, pc, full->code);
	put_section(file, &size, 0x8000000c, 0, 0, grid, 1, sizeof(grid));
	put_section(file, &size, 0x8000000b, 0, 0, sm, 1, sizeof(sm));
	put_section(file, &size, 0x8000000d, 5, 0, block, 1, sizeof(block));
	put_section(file, &size, 0x8000000e, 6, 0, warps, WARPS, sizeof(warps[0]));
	for (unsigned i = 0; i < WARPS; i++)
		put_section(file, &size, 0x8000000f, 7, i, lanes, LANES, sizeof(lanes[0]));
	*ret_size = size;
	return file;
}

START_TEST(many_that_took_places_are_not_looked_up_each)
{
	struct dump_report report;
	uint64_t size;
	uint8_t *bytes = make_full_device(&(struct full){.module = 0xa, .exception = 14}, &size);

	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert_uint_eq(report.count, 1);
	ck_assert(!report.more && !report.kernels[0].has_block && !report.kernels[0].strayed);
	ck_assert_uint_eq(report.kernels[0].module, 0xb);
	ck_assert_uint_eq(report.kernels[0].pc, CODE + CODE_FAR);
	free(bytes);
}
END_TEST

/* As the compiler writes them for a device 9.0, and LDS, STS and ATOMS without a uniform register for others. */
#define LDS                                                                                                  \
	{                                                                                                    \
		0x00000004ff057984, 0x000e620008000800                                                       \
	}
#define STL                                                                                                  \
	{                                                                                                    \
		0x00014c2701007387, 0x000fe80000100800                                                       \
	}

static const struct {
	struct code code;
	bool is_shared;
} instructions[] = {
	{LDS, true},
	{{0x0000000000007984, 0x000e280000005800}, true}, /* LDS */
	{{0x00000000ff007988, 0x004fe20008000804}, true}, /* STS */
	{{0x0000000003007388, 0x004fe80000004800}, true}, /* STS */
	{{0x00000000ff07098c, 0x000ea20008000004}, true}, /* ATOMS */
	{{0x000000050005738c, 0x000e280004004000}, true}, /* ATOMS */
	{{0x000000040005738d, 0x000e680000000005}, true}, /* ATOMS.CAS */
	{{0x00000004ff04783b, 0x000e620008000200}, true}, /* LDSM */
	{{0x0000000400007844, 0x004fe20000000200}, true}, /* STSM */
	{STL, false},
	{{0x00000004ff057980, 0x000ea40008100900}, false}, /* LD: of whatever memory */
	{{0x00000400ff007985, 0x000fe20008100904}, false}, /* ST */
	{{0x0000000402077981, 0x001eaa000c1f5900}, false}, /* LDG */
	{{0x0000000902007986, 0x000fe2000c115904}, false}, /* STG */
	{{0x000000000000794d, 0x000fea0003800000}, false}, /* EXIT */
	{{0, 0}, false},
};

static bool may_be_stack(const struct full *full)
{
	struct dump_report report;
	uint64_t size;
	uint8_t *bytes = make_full_device(full, &size);
	bool may = false;

	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert_uint_ge(report.count, 1);
	for (uint32_t i = 0; i < report.count; i++)
		may |= report.kernels[i].may_be_stack;
	free(bytes);
	return may;
}

/* Whether its warps are there (0xb) or not. */
static const uint64_t present[] = {0xa, 0xb};

START_TEST(what_uses_shared_memory_alone_is_no_stack)
{
	for (size_t i = 0; i < sizeof(present) / sizeof(*present); i++) {
		struct full full = {.module = present[i], .exception = 5, .code = {instructions[_i].code}};

		ck_assert(may_be_stack(&full) == !instructions[_i].is_shared);
		full.exception = 14;
		ck_assert(!may_be_stack(&full));
	}
}
END_TEST

START_TEST(one_warp_of_many_may_have_a_stack_that_overflowed)
{
	for (size_t i = 0; i < sizeof(present) / sizeof(*present); i++) {
		struct full full = {.module = present[i], .exception = 5, .code = {LDS, LDS}};

		full.second = true;
		ck_assert(!may_be_stack(&full));
		full.code[1] = (struct code)STL;
		ck_assert(may_be_stack(&full));
		full.second = false;
		ck_assert(!may_be_stack(&full));
	}
}
END_TEST

/* Instructions of other architectures may mean anything, and one that is not in the file does. */
START_TEST(what_cannot_be_read_may_be_a_stack)
{
	struct full full = {.module = 0xb, .exception = 5, .code = {LDS}};
	struct dump_report report;
	uint64_t size;
	uint8_t *bytes = make_full_device(&full, &size);
	Elf64_Shdr *image = dump_find_section(bytes, 0x80000007) + 1;
	Elf64_Ehdr *head = (Elf64_Ehdr *)(void *)(bytes + image->sh_offset);

	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert(!report.kernels[0].may_be_stack);
	head->e_flags = 100 << 8;
	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert(report.kernels[0].may_be_stack);
	head->e_flags = 90 << 8;
	image->sh_size -= 4096;
	ck_assert_int_eq(dump_read(bytes, size, &report), 0);
	ck_assert(report.kernels[0].may_be_stack);
	free(bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("server/backend/dump");
	TCase *tests = suite_case(suite, "dump");

	tcase_add_loop_test(tests, kernels_that_faulted_are_named, 0, KNOWN);
	tcase_add_loop_test(tests, no_dump_that_ends_early_is_read_beyond, 0, KNOWN);
	tcase_add_loop_test(tests, no_damage_leads_out_of_the_dump, 0, KNOWN);
	tcase_add_loop_test(tests, no_huge_number_leads_out_of_the_dump, 0, KNOWN);
	tcase_add_test(tests, a_module_that_is_not_listed_stays_unknown);
	tcase_add_test(tests, many_sections_are_counted_in_the_first);
	tcase_add_test(tests, who_is_on_the_same_multiprocessor_is_not_blamed);
	tcase_add_loop_test(tests, who_took_the_place_of_the_culprit_is_not_blamed, 0, 2);
	tcase_add_test(tests, where_warp_and_multiprocessor_disagree_there_is_more);
	tcase_add_test(tests, many_that_took_places_are_not_looked_up_each);
	tcase_add_loop_test(tests, what_uses_shared_memory_alone_is_no_stack, 0,
		(int)(sizeof(instructions) / sizeof(*instructions)));
	tcase_add_test(tests, one_warp_of_many_may_have_a_stack_that_overflowed);
	tcase_add_test(tests, what_cannot_be_read_may_be_a_stack);
	return suite_run(suite);
}
