// Tests of client/text/render.c: what records of kernels say, and records that are cut or
// senseless.

#include <stdlib.h>
#include <string.h>

#include "client/text/render.h"
#include "tests/lib/suite.h"

static uint64_t words[4096];
static size_t count;

static void setup(void)
{
	memset(words, 0x55, sizeof(words));
	count = 0;
}

static void add_text(const char *text)
{
	size_t length = strlen(text) / 8 + 1;

	memset(words + count, 0, length * 8);
	memcpy(words + count, text, strlen(text));
	count += length;
}

static void add_word(uint64_t word)
{
	words[count++] = word;
}

static void add_double(double value)
{
	memcpy(&words[count++], &value, sizeof(value));
}

/* What the record says if only `size` words of it are there; in a block of that size, so that a
 * sanitizer sees a look beyond. */
static char *said(void (*render)(FILE *, const uint64_t *, size_t), size_t size)
{
	uint64_t *copy = malloc(size * 8 + 1);
	size_t length;
	char *text;
	FILE *out = open_memstream(&text, &length);

	memcpy(copy, words, size * 8);
	render(out, copy, size);
	fclose(out);
	free(copy);
	return text;
}

#define ck_says(render, expected)                                                                            \
	do {                                                                                                 \
		char *text_ = said(render, count);                                                           \
		ck_assert_str_eq(text_, expected);                                                           \
		free(text_);                                                                                 \
		count = 0;                                                                                   \
	} while (0)

START_TEST(plain_text)
{
	add_text("nothing to see, 100 %% sure\n");
	ck_says(render_printf, "nothing to see, 100 % sure\n");
	add_text("");
	ck_says(render_printf, "");
	add_text("%d stays\n");
	ck_says(render_plain, "%d stays\n");
}
END_TEST

START_TEST(integers)
{
	add_text("%d %u %i|%5d|%-5d|%05d|%+d|% d|%x %X %#x %o %c");
	add_word((uint32_t)-1);
	add_word(UINT32_MAX);
	for (int i = 0; i < 6; i++)
		add_word(7);
	for (int i = 0; i < 4; i++)
		add_word(255);
	add_word('c');
	ck_says(render_printf, "-1 4294967295 7|    7|7    |00007|+7| 7|ff FF 0xff 377 c");
	add_text("%ld %lld %llx %hd %hhd %.3d|%8.3x");
	add_word((uint64_t)-1);
	add_word((uint64_t)-2);
	add_word(UINT64_MAX);
	add_word(70000);
	add_word(300);
	add_word(7);
	add_word(10);
	ck_says(render_printf, "-1 -2 ffffffffffffffff 4464 44 007|     00a");
}
END_TEST

START_TEST(numbers_and_pointers)
{
	add_text("%f %e %g|%10.3f|%-10.1e|%.0f %p");
	for (int i = 0; i < 3; i++)
		add_double(1.5);
	add_double(3.14159);
	add_double(1000);
	add_double(2.5);
	add_word(0x1234);
	ck_says(render_printf, "1.500000 1.500000e+00 1.5|     3.142|1.0e+03   |2 0x1234");
}
END_TEST

START_TEST(texts)
{
	add_text("%s|%10s|%-10s|%.3s|%s\n");
	add_text("abc");
	add_text("abcdefgh");
	add_text("x");
	add_text("abc");
	add_text("");
	ck_says(render_printf, "abc|  abcdefgh|x         |abc|\n");
}
END_TEST

START_TEST(asterisks)
{
	add_text("%*d|%-*d|%*d|%.*s|%.*f|%*.*f");
	add_word(5), add_word(1);
	add_word(5), add_word(2);
	add_word((uint32_t)-5), add_word(3);
	add_word(2), add_text("ab");
	add_word((uint32_t)-1), add_double(0.5);
	add_word(6), add_word(2), add_double(0.5);
	ck_says(render_printf, "    1|2    |3    |ab|0.500000|  0.50");
}
END_TEST

/* What is no conversion takes no argument; for kernels these are fewer than for programs. */
START_TEST(oddities)
{
	add_text("%y %d|%k|%zu %Lf|%5%|%n%d|%");
	add_word(1);
	add_word(99);
	add_word(2);
	ck_says(render_printf, "%y 1|%k|%zu %Lf|%|2|%");
}
END_TEST

/* Fields stay bounded, whatever the format says. */
START_TEST(large_fields)
{
	char *text;

	add_text("%99999999999d%*d%.99999999999d");
	add_word(1);
	add_word(0x7fffffff), add_word(2);
	add_word(3);
	text = said(render_printf, count);
	ck_assert_uint_eq(strlen(text), 3 * 65536);
	free(text);
	count = 0;
	add_text("%*d");
	add_word(0x80000000), add_word(2);
	text = said(render_printf, count);
	ck_assert_uint_le(strlen(text), 65537);
	free(text);
}
END_TEST

/* Cut anywhere, a record says what is there. */
START_TEST(cut_records)
{
	add_text("a long beginning %d %s %f %*d\n");
	add_word(1);
	add_text("some text of some length");
	add_double(1);
	add_word(3);
	add_word(4);
	for (size_t size = 0; size <= count; size++) {
		char *text = said(render_printf, size);

		ck_assert_uint_eq(
			strlen(text) == strlen("a long beginning 1 some text of some length 1.000000   4\n"),
			size == count);
		free(text);
	}
}
END_TEST

START_TEST(assertions)
{
	add_word(12);
	for (uint64_t i = 1; i <= 6; i++)
		add_word(i);
	add_text("value < 5");
	add_text("a/file.cu");
	add_text("void kernel(int)");
	for (size_t size = 0; size < count; size++) {
		char *text = said(render_assert, size);

		ck_assert_str_eq(text, "");
		free(text);
	}
	ck_says(render_assert, "a/file.cu:12: void kernel(int): block: [1,2,3], thread: [4,5,6] Assertion "
			       "`value < 5` failed.\n");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {plain_text, integers, numbers_and_pointers, texts, asterisks, oddities,
		large_fields, cut_records, assertions};
	Suite *suite = suite_create("render");
	TCase *all = suite_case(suite, "render");

	tcase_add_checked_fixture(all, setup, NULL);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(all, tests[i]);
	return suite_run(suite);
}
