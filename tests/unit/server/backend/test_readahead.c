// Reading ahead of the driver: always the bytes that a read of its own would have brought, with few controls.

#include "server/backend/cuda/readahead.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"

#define MIB    (UINT64_C(1) << 20)
#define STRIDE 704u
#define LINE   128u
/* Reads that are always made one by one, and a few more. */
#define WARM_UP 70u
#define REFUSED 0x1fu

/* A memory object of the device that does not end with a whole part. */
static const uint64_t object_bytes = 300 * MIB + 12345;
static unsigned executed;
static uint8_t salt;

static uint8_t byte_at(uint32_t memory, uint64_t offset)
{
	return (uint8_t)(offset ^ offset >> 8 ^ offset >> 16 ^ memory * 37 ^ salt);
}

/* The kernel-mode driver. */
static int execute(int fd, unsigned long request, void *argument)
{
	struct control *control = argument;
	struct control_read *wish = (void *)(uintptr_t)control->parameters;
	uint8_t *to = (void *)(uintptr_t)wish->buffer;

	ck_assert_int_eq(fd, 5);
	ck_assert_uint_eq(request, 0x1234);
	executed++;
	control->status = wish->offset + wish->length > object_bytes ? REFUSED : 0;
	for (uint32_t i = 0; !control->status && i < wish->length; i++)
		to[i] = byte_at(wish->memory, wish->offset + i);
	return 0;
}

/* Return: NV_STATUS. */
static uint32_t read_some(uint32_t memory, uint64_t offset, uint32_t length, uint8_t *ret_bytes)
{
	struct control_read wish = {
		.memory = memory, .length = length, .offset = offset, .buffer = (uintptr_t)ret_bytes};
	struct control control = {.client = 1,
		.object = 2,
		.command = CONTROL_READ,
		.parameters = (uintptr_t)&wish,
		.size = sizeof(wish),
		.status = 99};

	ck_assert_int_eq(readahead_read(5, 0x1234, &control, execute), 0);
	ck_assert_uint_eq(wish.length, length);
	return control.status;
}

static void check(uint32_t memory, uint64_t offset, uint32_t length)
{
	uint8_t *bytes = calloc(1, length);
	uint32_t wrong = 0;

	ck_assert_uint_eq(read_some(memory, offset, length, bytes), 0);
	for (uint32_t i = 0; i < length; i++)
		wrong += bytes[i] != byte_at(memory, offset + i);
	ck_assert_uint_eq(wrong, 0);
	free(bytes);
}

static void start(void)
{
	readahead_forget();
	executed = 0;
	for (unsigned i = 0; i < WARM_UP; i++)
		check(7, i * (uint64_t)LINE, LINE);
	executed = 0;
}

START_TEST(a_few_reads_are_made_as_they_were_asked_for)
{
	readahead_forget();
	executed = 0;
	for (unsigned i = 0; i < 60; i++)
		check(7, i * MIB, LINE);
	ck_assert_uint_eq(executed, 60);
}
END_TEST

START_TEST(many_reads_cost_a_control_per_part)
{
	start();
	for (uint64_t at = 0; at + LINE < 4 * MIB; at += STRIDE)
		check(7, at, LINE);
	/* Parts, and the reads that lie across two of them. */
	ck_assert_uint_le(executed, 4 + 4);
	for (uint64_t at = 0; at + LINE < 4 * MIB; at += STRIDE)
		check(7, at, LINE);
	ck_assert_uint_le(executed, 4 + 2 * 4);
}
END_TEST

START_TEST(what_was_forgotten_is_read_again)
{
	start();
	check(7, 3 * MIB, LINE);
	salt++;
	readahead_forget();
	check(7, 3 * MIB, LINE);
	start();
	check(7, 3 * MIB, LINE);
	ck_assert_uint_eq(executed, 1);
}
END_TEST

START_TEST(objects_are_told_apart)
{
	start();
	for (uint32_t memory = 1; memory < 9; memory++)
		check(memory, 5 * MIB + 64, LINE);
	for (uint32_t memory = 1; memory < 9; memory++)
		check(memory, 5 * MIB + 640, LINE);
	ck_assert_uint_eq(executed, 8);
}
END_TEST

START_TEST(the_end_of_an_object_is_read_as_it_was_asked_for)
{
	uint8_t bytes[LINE];

	start();
	for (unsigned i = 0; i < 50; i++)
		check(7, 300 * MIB + i * (uint64_t)LINE, LINE);
	/* One that brings nothing, and then each for itself. */
	ck_assert_uint_eq(executed, 51);
	ck_assert_uint_eq(read_some(7, object_bytes - 1, LINE, bytes), REFUSED);
}
END_TEST

START_TEST(large_reads_and_reads_across_parts_are_made_as_they_were_asked_for)
{
	start();
	check(7, 0, 3 * (uint32_t)MIB);
	check(7, MIB - 64, LINE);
	ck_assert_uint_eq(executed, 2);
}
END_TEST

START_TEST(more_parts_than_are_kept_are_still_read)
{
	start();
	for (uint64_t part = 0; part < 299; part++)
		check(7, part * MIB + 4096, LINE);
	for (uint64_t part = 0; part < 299; part++)
		check(7, part * MIB + 8192, LINE);
	readahead_forget();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("server/backend/readahead");
	TCase *tests = suite_case(suite, "readahead");

	tcase_add_test(tests, a_few_reads_are_made_as_they_were_asked_for);
	tcase_add_test(tests, many_reads_cost_a_control_per_part);
	tcase_add_test(tests, what_was_forgotten_is_read_again);
	tcase_add_test(tests, objects_are_told_apart);
	tcase_add_test(tests, the_end_of_an_object_is_read_as_it_was_asked_for);
	tcase_add_test(tests, large_reads_and_reads_across_parts_are_made_as_they_were_asked_for);
	tcase_add_test(tests, more_parts_than_are_kept_are_still_read);
	return suite_run(suite);
}
