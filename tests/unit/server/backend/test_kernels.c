// What the service's own loader reads of kernels (images/placed.cu), how it places their code, what
// it leaves to the driver, and images that lie; and whether the cubin of trampolines is one that it
// would take itself.

#include <stdlib.h>
#include <string.h>

#include "server/backend/kernels.h"
#include "server/backend/trampoline_image.h"
#include "tests/lib/seed.h"
#include "tests/unit/server/backend/image_bed.h"

#define MUTATIONS 3000
#define BASE	  UINT64_C(0x7f1122330000)

static struct kernels kernels;

static CUresult read_image(void)
{
	return kernels_open(&kernels, image, image_bytes);
}

static const struct kernels_kernel *kernel_of(const char *name)
{
	const struct kernels_kernel *found = kernels_find(&kernels, name);

	ck_assert_msg(found != NULL, "%s", name);
	return found;
}

static void open_placed(void)
{
	load("placed.cubin");
	ck_assert_int_eq(read_image(), CUDA_SUCCESS);
}

/* Behind a change of the image. */
static void open_again(void)
{
	kernels_close(&kernels);
	ck_assert_int_eq(read_image(), CUDA_SUCCESS);
}

static void drop(void)
{
	kernels_close(&kernels);
	unload();
}

TEST(kernels, kernels_are_read)
{
	const struct kernels_kernel *plain, *jumps;

	open_placed();
	ck_assert_uint_eq(kernels.count, 4);
	for (uint32_t i = 1; i < kernels.count; i++)
		ck_assert_uint_lt(kernels.at[i - 1].section, kernels.at[i].section);
	for (uint32_t i = 0; i < kernels.count; i++)
		ck_assert_ptr_eq(kernels_find(&kernels, kernels.at[i].name), &kernels.at[i]);
	ck_assert_ptr_null(kernels_find(&kernels, "nothing"));
	plain = kernel_of("plain");
	ck_assert_uint_eq(plain->shared, 256);
	ck_assert_uint_eq(plain->barriers, 1);
	ck_assert_int_eq(plain->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK], 128);
	ck_assert_int_eq(plain->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES], 256);
	ck_assert_int_eq(plain->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES], 49152 - 256);
	ck_assert_int_eq(plain->attributes[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES], 16);
	ck_assert_int_eq(plain->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION], 90);
	ck_assert_int_eq(plain->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION], 90);
	jumps = kernel_of("jumps");
	ck_assert_int_eq(jumps->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK], 1024);
	/* Nine jumps. */
	ck_assert_uint_eq(jumps->tail_bytes, 36);
	ck_assert(kernels.reads_constants);
}

TEST(kernels, parameters_are_read)
{
	static struct backend_function_info info;

	open_placed();
	ck_assert(kernels_parameters(&kernels, kernel_of("plain"), &info));
	ck_assert_uint_eq(info.param_count, 3);
	ck_assert_uint_eq(info.params[0].size, 8);
	ck_assert_uint_eq(info.params[1].offset, 8);
	ck_assert_uint_eq(info.params[1].size, 2);
	ck_assert_uint_eq(info.params[2].offset, 10);
	ck_assert_uint_eq(info.params[2].size, 20);
	ck_assert_uint_eq(info.argument_bytes, 30);
}

/* Compilers describe more than 4096 bytes in another form. */
TEST(kernels, many_parameters_are_read)
{
	static struct backend_function_info info;

	load("wide.cubin");
	ck_assert_int_eq(read_image(), CUDA_SUCCESS);
	ck_assert(kernels_parameters(&kernels, kernel_of("widest"), &info));
	ck_assert_uint_eq(info.param_count, 3);
	ck_assert_uint_eq(info.params[0].size, 32000);
	ck_assert_uint_eq(info.params[1].offset, 32000);
	ck_assert_uint_eq(info.params[1].size, 2);
	ck_assert_uint_eq(info.params[2].offset, 32008);
	ck_assert_uint_eq(info.argument_bytes, 32016);
	ck_assert(kernels_parameters(&kernels, kernel_of("narrow"), &info));
	ck_assert_uint_eq(info.argument_bytes, 4008);
}

TEST(kernels, shapes_are_read)
{
	static struct backend_function_info info;

	load("shaped.cubin");
	ck_assert_int_eq(read_image(), CUDA_SUCCESS);
	ck_assert(kernels_parameters(&kernels, kernel_of("one_size"), &info));
	ck_assert_uint_eq(info.shape.block[0], 32);
	ck_assert_uint_eq(info.shape.block[1], 2);
	ck_assert_uint_eq(info.shape.block[2], 1);
	ck_assert_int_eq(info.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK], 1024);
	ck_assert(kernels_parameters(&kernels, kernel_of("small_clusters"), &info));
	ck_assert_uint_eq(info.shape.block[0], 0);
	ck_assert_uint_eq(info.shape.cluster_most, 4);
	ck_assert_int_eq(info.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK], 128);
	ck_assert(kernels_parameters(&kernels, kernel_of("own_clusters"), &info));
	ck_assert_int_eq(info.attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH], 2);
	ck_assert_int_eq(info.attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET], 0);
}

/* The driver makes blocks of them. */
TEST(kernels, kernels_that_count_clusters_are_the_drivers)
{
	load("clustered.cubin");
	ck_assert_int_eq(read_image(), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(kernels.why, LOAD_REASON_CLUSTERS);
}

static void give_places(void)
{
	for (uint32_t i = 0; i < kernels.part_count; i++)
		kernels.places[kernels.parts[i].section] = BASE + 4096 * i;
	kernels.places[kernels.constants] = BASE + 0x100000;
}

static uint64_t address_of(const char *name)
{
	uint64_t address, bytes;
	bool is_constant;

	ck_assert(kernels_variable(&kernels, name, &is_constant, &address, &bytes));
	ck_assert(is_constant == !strcmp(name, "steps"));
	return address;
}

/* Loads from banks 2 and 4 that are left in code. */
static unsigned count_loads(const uint8_t *code, uint64_t bytes, uint64_t bank, uint64_t *ret_offset)
{
	unsigned count = 0;

	for (uint64_t at = 0; at < bytes; at += 16) {
		uint64_t low;

		memcpy(&low, code + at, sizeof(low));
		if (((low & 0xfff) != 0xb82 && (low & 0xfff) != 0xab9 && (low & 0xfff) != 0xabb) ||
			(low >> 54 & 31) != bank)
			continue;
		if (!count++)
			*ret_offset = low >> 38 & 0xffff;
	}
	return count;
}

/* The tables of a kernel are behind its parameters, and its code reads them there. */
TEST(kernels, tables_move_behind_the_parameters)
{
	const struct kernels_kernel *slots;
	uint64_t bytes, offset = 0, slot[2];
	uint8_t *code, *tail;

	open_placed();
	give_places();
	slots = kernel_of("slots");
	bytes = kernels_code_bytes(&kernels, slots);
	code = malloc(bytes);
	tail = malloc(slots->tail_bytes);
	ck_assert_uint_gt(
		count_loads(image + elf_section(&kernels.elf, slots->section).sh_offset, bytes, 4, &offset),
		0);
	kernels_place(&kernels, slots, code, tail);
	ck_assert_uint_eq(count_loads(code, bytes, 4, &offset), 0);
	ck_assert_uint_eq(slots->tail, 16);
	memcpy(slot, tail, sizeof(slot));
	ck_assert(slot[0] == address_of("counts") || slot[1] == address_of("counts"));
	ck_assert(slot[0] == address_of("firsts") || slot[1] == address_of("firsts"));
	free(code);
	free(tail);
	address_of("steps");
}

/* The first load of the kernel `slots` from the table of addresses. */
static uint8_t *first_slot_load(void)
{
	uint8_t *code = image + elf_section(&kernels.elf, kernel_of("slots")->section).sh_offset;
	uint64_t unused;

	while (!count_loads(code, 16, 4, &unused))
		code += 16;
	return code;
}

/* A kernel carries the addresses that it reads, not all of its module's. */
TEST(kernels, a_kernel_carries_what_it_reads)
{
	static const uint64_t nop[2] = {UINT64_C(0x7918), UINT64_C(0x000fc00000000000)};
	const struct kernels_kernel *slots;
	uint64_t bytes, offset = 0, slot, parameters = 0x210;
	uint8_t *code, *tail;

	open_placed();
	memcpy(first_slot_load(), nop, sizeof(nop));
	open_again();
	give_places();
	slots = kernel_of("slots");
	ck_assert_uint_eq(slots->tail_bytes, sizeof(slot));
	bytes = kernels_code_bytes(&kernels, slots);
	code = malloc(bytes);
	tail = malloc(slots->tail_bytes);
	kernels_place(&kernels, slots, code, tail);
	memcpy(&slot, tail, sizeof(slot));
	ck_assert(slot == address_of("counts") || slot == address_of("firsts"));
	for (uint64_t at = 0, from; at < bytes; at += 16)
		if (count_loads(
			    image + elf_section(&kernels.elf, slots->section).sh_offset + at, 16, 4, &from)) {
			ck_assert_uint_eq(count_loads(code + at, 16, 0, &offset), 1);
			ck_assert_uint_eq(offset, parameters + slots->tail + from % 8);
		}
	free(code);
	free(tail);
}

/* It carries all of them if nobody can tell which ones it reads. */
TEST(kernels, a_kernel_that_reads_by_an_index_carries_all)
{
	open_placed();
	first_slot_load()[3] = 4; /* the register with the index; none is 255 or 0 */
	open_again();
	ck_assert_uint_eq(kernel_of("slots")->tail_bytes, 16);
}

/* Such an address would lie beyond the last slot that a kernel carries. */
TEST(kernels, addresses_between_slots_are_refused)
{
	const uint64_t offset = 4;
	Elf64_Shdr section;

	open_placed();
	section = elf_section(&kernels.elf, kernels.relocations[kernels.slots]);
	memcpy(image + section.sh_offset, &offset, sizeof(offset));
	kernels_close(&kernels);
	ck_assert_int_eq(read_image(), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(kernels.why, LOAD_REASON_RELOCATIONS);
}

TEST(kernels, jumps_move_behind_the_parameters)
{
	const struct kernels_kernel *jumps;
	uint64_t offset = 0, bytes;
	uint8_t *code, *tail;

	open_placed();
	give_places();
	jumps = kernel_of("jumps");
	bytes = kernels_code_bytes(&kernels, jumps);
	code = malloc(bytes);
	tail = malloc(jumps->tail_bytes);
	kernels_place(&kernels, jumps, code, tail);
	ck_assert_uint_eq(count_loads(code, bytes, 2, &offset), 0);
	ck_assert_int_eq(memcmp(tail, image + elf_section(&kernels.elf, jumps->jumps).sh_offset, 36), 0);
	free(code);
	free(tail);
}

static const struct kernels_part *function_part(void)
{
	for (uint32_t i = 0; i < kernels.part_count; i++)
		if (kernels.parts[i].is_code)
			return &kernels.parts[i];
	ck_abort_msg("no function");
}

/* A function finds its table where all kernels that may call it carry theirs. The index has 0x8000
 * added, the offset is so much less. */
TEST(kernels, jumps_of_functions_move_to_one_place)
{
	const uint64_t place = KERNELS_PARAMETERS + 64;
	const struct kernels_part *function;
	uint64_t offset = 0;
	unsigned moved = 0;
	uint8_t *code, tail[28];

	load("jumping.cubin");
	ck_assert_int_eq(read_image(), CUDA_SUCCESS);
	give_places();
	function = function_part();
	ck_assert_uint_eq(kernel_of("few")->parameters, 8);
	ck_assert_uint_eq(kernel_of("few")->tail, 64);
	ck_assert_uint_eq(kernel_of("many")->tail, 64);
	ck_assert_uint_eq(kernel_of("without")->tail_bytes, 0);
	ck_assert_uint_eq(kernel_of("few")->tail_bytes, sizeof(tail));
	code = malloc(function->bytes);
	kernels_fill_part(&kernels, function, code);
	ck_assert_uint_eq(count_loads(code, function->bytes, 2, &offset), 0);
	for (uint64_t at = 0; at < function->bytes; at += 16)
		if (count_loads(code + at, 16, 0, &offset) && offset >= 0x8000) {
			ck_assert(offset == 0x8000 + place || offset == 0x8000 + place + 12);
			moved++;
		}
	ck_assert_uint_eq(moved, 2);
	free(code);
	code = malloc(kernels_code_bytes(&kernels, kernel_of("few")));
	kernels_place(&kernels, kernel_of("few"), code, tail);
	ck_assert_mem_eq(
		tail, image + elf_section(&kernels.elf, kernel_of("few")->jumps).sh_offset, sizeof(tail));
	free(code);
}

/* As a linker does not write it. */
TEST(kernels, functions_that_read_addresses_are_refused)
{
	const uint64_t load_4[2] = {UINT64_C(0xb82) | UINT64_C(4) << 54 | UINT64_C(255) << 24, 0};
	const struct kernels_part *function;

	load("jumping.cubin");
	ck_assert_int_eq(read_image(), CUDA_SUCCESS);
	function = function_part();
	memcpy(image + elf_section(&kernels.elf, function->section).sh_offset, load_4, sizeof(load_4));
	kernels_close(&kernels);
	ck_assert_int_eq(read_image(), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(kernels.why, LOAD_REASON_TABLES);
}

/* Return: where the kernel reads its constants, which begin so far in their bank */
static uint64_t read_constants_at(uint32_t constant_offset)
{
	const struct kernels_kernel *constants = kernel_of("constants");
	uint64_t bytes = kernels_code_bytes(&kernels, constants), offset = 0;
	uint8_t *code = malloc(bytes), *tail = malloc(constants->tail_bytes + 1);

	kernels.constant_offset = constant_offset;
	kernels_place(&kernels, constants, code, tail);
	ck_assert_uint_gt(count_loads(code, bytes, 3, &offset), 0);
	free(code);
	free(tail);
	return offset;
}

/* Constants are in a bank that the trampoline brings along, among those of other modules. */
TEST(kernels, constants_share_a_bank)
{
	uint32_t values[4];
	uint64_t first;

	open_placed();
	give_places();
	first = read_constants_at(0);
	ck_assert_uint_eq(read_constants_at(0x1200), 0x1200 + first);
	ck_assert_uint_lt(kernels.constant_offset_most, 0x8000);
	ck_assert_uint_ge(kernels.constant_offset_most, 0x7e00);
	ck_assert_uint_eq(kernels.constant_offset_most % KERNELS_CONSTANT_ALIGN, 0);
	ck_assert_uint_eq(kernels.constant_bytes, sizeof(values));
	kernels_fill_constants(&kernels, (uint8_t *)values);
	ck_assert_uint_eq(values[3], 11);
}

/* The first load of the bank in the image. */
static uint8_t *load_of(const char *name, unsigned bank)
{
	Elf64_Shdr section = elf_section(&kernels.elf, kernel_of(name)->section);

	for (uint8_t *at = image + section.sh_offset;; at += 16) {
		uint64_t low;

		ck_assert(at < image + section.sh_offset + section.sh_size);
		memcpy(&low, at, sizeof(low));
		if ((low >> 54 & 0x1f) == bank && ((low & 0xfff) == 0xb82 || (low & 0xfff) == 0xab9))
			return at;
	}
}

/* An instruction's offset beside an index has 15 bits and a sign. */
TEST(kernels, constants_move_as_far_as_all_instructions_can)
{
	uint64_t low, base;
	uint8_t *at;

	open_placed();
	at = load_of("constants", 3);
	memcpy(&base, at, sizeof(base));
	base &= ~(UINT64_C(0xffff) << 38);
	low = base | UINT64_C(0x5000) << 38;
	memcpy(at, &low, sizeof(low));
	open_again();
	ck_assert_uint_eq(kernels.constant_offset_most, 0x2f00);
	/* In front of the table, from the index on. */
	low = base | UINT64_C(0xffd8) << 38;
	memcpy(at, &low, sizeof(low));
	open_again();
	ck_assert_uint_ge(kernels.constant_offset_most, 0x7e00);
	give_places();
	ck_assert_uint_eq(read_constants_at(0x100), 0xd8);
	/* Bank 0, where the address of bank 3 lies. */
	low = (base & ~(UINT64_C(0x1f) << 54)) | UINT64_C(0xd0) << 38;
	memcpy(at, &low, sizeof(low));
	open_again();
	ck_assert(kernels.reads_constants);
	ck_assert_uint_eq(kernels.constant_offset_most, 0);
}

/* ULDC UR4 = bank 3, at 16. */
#define FUNCTION_READS (UINT64_C(0x047ab9) | UINT64_C(3) << 54 | UINT64_C(16) << 38)

TEST(kernels, functions_read_constants_where_they_are)
{
	const uint64_t reads = FUNCTION_READS;
	uint64_t offset = 0;
	uint32_t found = 0;

	load("called.cubin");
	ck_assert_int_eq(read_image(), CUDA_SUCCESS);
	give_places();
	kernels.constant_offset = 0x300;
	for (uint32_t i = 0; i < kernels.part_count; i++) {
		const struct kernels_part *part = &kernels.parts[i];
		uint8_t *code = part->is_code ? malloc(part->bytes) : NULL;

		if (!code)
			continue;
		memcpy(image + elf_section(&kernels.elf, part->section).sh_offset, &reads, sizeof(reads));
		kernels_fill_part(&kernels, part, code);
		ck_assert_uint_eq(count_loads(code, part->bytes, 3, &offset), 1);
		ck_assert_uint_eq(offset, 0x310);
		free(code);
		found++;
	}
	ck_assert_uint_gt(found, 0);
}

TEST(kernels, variables_have_their_first_values)
{
	uint32_t values[3] = {0};
	unsigned found = 0;

	open_placed();
	for (uint32_t i = 0; i < kernels.part_count; i++)
		if (!kernels.parts[i].is_zero && kernels.parts[i].bytes == sizeof(values)) {
			kernels_fill_part(&kernels, &kernels.parts[i], (uint8_t *)values);
			found++;
		}
	ck_assert_uint_eq(found, 1);
	ck_assert_uint_eq(values[2], 300);
}

/* Where a call by address leads (0x943), as its instruction has it. */
static uint64_t call_target(const uint8_t *code, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += 16) {
		uint64_t low, high;

		memcpy(&low, code + at, sizeof(low));
		memcpy(&high, code + at + sizeof(low), sizeof(high));
		if ((low & 0xfff) == 0x943)
			return 4 * ((low >> 16 & 0xff) | low >> 34 << 8 | (high & 0x1ffff) << 38);
	}
	ck_abort_msg("no call");
}

/* The device linker has functions called by their addresses. */
TEST(kernels, calls_lead_to_functions)
{
	const struct kernels_kernel *calls;
	uint64_t bytes, function;
	uint8_t *code, *tail;

	load("called.cubin");
	ck_assert_int_eq(read_image(), CUDA_SUCCESS);
	give_places();
	function = kernels.places[function_part()->section];
	calls = kernel_of("calls");
	bytes = kernels_code_bytes(&kernels, calls);
	code = malloc(bytes);
	tail = malloc(calls->tail_bytes + 1);
	kernels_place(&kernels, calls, code, tail);
	ck_assert_uint_ne(function, 0);
	ck_assert_uint_eq(call_target(code, bytes), function);
	free(code);
	free(tail);
}

static const struct {
	const char *image, *why;
} refused[] = {{"printing.cubin", "it calls functions of the driver"},
	{"asserting.cubin", "it calls functions of the driver"},
	{"statics_heap.cubin", "it calls functions of the driver"},
	{"statics_75.cubin", "the service's loader does not know code of its architecture"},
	{"statics_100.cubin", "the service's loader does not know code of its architecture"}};

TEST_LOOP(kernels, the_driver_gets_what_is_not_known, 0, 5)
{
	load(refused[_i].image);
	ck_assert_int_eq(read_image(), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_str_eq(load_reason_text(kernels.why), refused[_i].why);
}

/* An instruction that reads a bank in another way is not moved by guessing. */
TEST(kernels, other_reads_of_tables_are_refused)
{
	const struct kernels_kernel *slots;
	const uint64_t other = UINT64_C(4) << 54 | 0x7a24; /* IMAD with a constant */

	open_placed();
	slots = kernel_of("slots");
	memcpy(image + elf_section(&kernels.elf, slots->section).sh_offset + 32, &other, sizeof(other));
	kernels_close(&kernels);
	ck_assert_int_eq(read_image(), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_str_eq(
		load_reason_text(kernels.why), "its code reads constants in a way that is not known");
}

/* Nor one whose bank is in a register. */
TEST(kernels, reads_of_any_bank_are_refused)
{
	const struct kernels_kernel *slots;
	const uint64_t other[2] = {UINT64_C(0xff007b82), UINT64_C(1) << 14};

	open_placed();
	slots = kernel_of("slots");
	memcpy(image + elf_section(&kernels.elf, slots->section).sh_offset + 32, other, sizeof(other));
	kernels_close(&kernels);
	ck_assert_int_eq(read_image(), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_str_eq(
		load_reason_text(kernels.why), "its code takes the number of a bank from a register");
}

static void use_everything(void)
{
	static struct backend_function_info info;

	give_places();
	for (uint32_t i = 0; i < kernels.part_count; i++) {
		uint8_t *part =
			kernels.parts[i].bytes > IMAGE_BYTES ? NULL : malloc(kernels.parts[i].bytes + 1);

		if (part)
			kernels_fill_part(&kernels, &kernels.parts[i], part);
		free(part);
	}
	for (uint32_t i = 0; i < kernels.count; i++) {
		uint64_t bytes = kernels_code_bytes(&kernels, &kernels.at[i]);
		uint8_t *code = malloc(bytes + 1), *tail = malloc(kernels.at[i].tail_bytes + 1);

		kernels_place(&kernels, &kernels.at[i], code, tail);
		kernels_parameters(&kernels, &kernels.at[i], &info);
		free(code);
		free(tail);
	}
}

static uint32_t next_random(uint32_t *state)
{
	*state = *state * UINT32_C(1664525) + UINT32_C(1013904223);
	return *state >> 8;
}

/* Nobody looks at it, and so nobody computes where it is: that is nowhere. */
TEST(kernels, a_section_without_contents_may_lie)
{
	Elf64_Shdr *found;

	load("placed.cubin");
	section_in(image, ".debug_frame", &found);
	found->sh_type = SHT_NOBITS;
	found->sh_offset = UINT64_C(0xb9) << 56;
	ck_assert_int_eq(read_image(), CUDA_SUCCESS);
}

static const char *const lying[] = {"statics_linked.cubin", "placed.cubin", "called.cubin", "wide.cubin"};

TEST_LOOP(kernels, images_may_lie, 0, 8)
{
	uint32_t state = seed_of((uint32_t)_i + 1), taken = 0;
	uint8_t *kept;

	load(lying[_i % 4]);
	kept = malloc(image_bytes);
	memcpy(kept, image, image_bytes);
	for (int i = 0; i < MUTATIONS; i++) {
		for (uint32_t n = next_random(&state) % 4 + 1; n; n--) {
			size_t range = next_random(&state) % 2 ? image_bytes : image_bytes / 3;
			size_t at = next_random(&state) % range;
			bool is_end = next_random(&state) % 2 && at < 4096;

			image[is_end ? image_bytes - 1 - at : at] = (uint8_t)next_random(&state);
		}
		if (!read_image()) {
			taken++;
			use_everything();
		}
		kernels_close(&kernels);
		memcpy(image, kept, image_bytes);
	}
	free(kept);
	if (_i % 4)
		ck_assert_uint_gt(taken, 10);
}

TEST(kernels, images_may_be_cut_off)
{
	size_t whole;

	load("placed.cubin");
	whole = image_bytes;
	for (size_t bytes = 0; bytes < whole; bytes += 61) {
		uint8_t *cut = malloc(bytes + 1);

		memcpy(cut, image, bytes);
		ck_assert_int_ne(kernels_open(&kernels, cut, bytes), CUDA_SUCCESS);
		kernels_close(&kernels);
		free(cut);
	}
}

TEST(kernels, trampolines_are_kernels)
{
	static const struct trampoline_class classes[] = {{24, 1, 64}, {40, 16, 4096}, {255, 1, 32752}};
	const struct trampoline_form form = {.classes = classes, .count = 3, .has_bank = true, .local = 4096};
	const struct kernels_kernel *found;
	struct backend_function_info info = {0};
	char name[TRAMPOLINE_NAME_BYTES];
	size_t bytes;
	uint8_t *made = trampoline_image(&form, &bytes);

	ck_assert_ptr_nonnull(made);
	ck_assert_int_eq(kernels_open(&kernels, made, bytes), CUDA_SUCCESS);
	ck_assert_uint_eq(kernels.count, 3);
	ck_assert_uint_eq(kernels.constant_bytes, TRAMPOLINE_BANK_BYTES);
	for (uint32_t i = 0; i < 3; i++) {
		trampoline_name(&classes[i], name);
		found = kernel_of(name);
		ck_assert_uint_eq(found->registers, classes[i].registers);
		ck_assert_uint_eq(found->barriers, classes[i].barriers);
		ck_assert_uint_eq(found->parameters, classes[i].carried);
		ck_assert_uint_eq(found->stack, 4096);
		/* A driver takes a graph's node only if it has bytes for all parameters. */
		ck_assert(kernels_parameters(&kernels, found, &info));
		ck_assert_uint_eq(info.argument_bytes, classes[i].carried);
		ck_assert_uint_eq(kernels_code_bytes(&kernels, found), 128);
	}
	kernels_close(&kernels);
	free(made);
}

int main(void)
{
	Suite *suite = suite_create("kernels");
	TCase *tests = tcase_create("kernels");

	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, NULL, drop);
	suite_add(tests, "kernels");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
