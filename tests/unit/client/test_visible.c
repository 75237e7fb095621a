// Tests of what cuInit reads from its surroundings: CUDA_VISIBLE_DEVICES (client/state/device.c)
// and the process's memory map (client/link/connect.c).

#include "client/link/connect.h"
#include "client/state/device.h"
#include "tests/lib/suite.h"

static const uint8_t uuids[3][16] = {
	{0x11, 0x22, 0x33, 0x44, 0x55},
	{0x11, 0x22, 0x33, 0x44, 0x66},
	{0xab, 0xcd, 0xef},
};

TEST(visible, lists_of_devices)
{
	static const struct {
		const char *visible;
		int ordinal[3];
	} rows[] = {
		{NULL, {0, 1, 2}},
		{"0", {0, -1, -1}},
		{"2,0", {1, -1, 0}},
		{" 1 , 2 ", {-1, 0, 1}},
		{"0,9,1", {0, -1, -1}},
		{"1,-1,0", {-1, 0, -1}},
		{"GPU-abcd", {-1, -1, 0}},
		{"GPU-abcdef00-0000-0000-0000-000000000000,0", {-1, -1, 0}},
		{"gpu-abcdef00-0000-0000-0000-000000000000", {-1, -1, -1}},
		{"0,GPU-abcd", {0, -1, -1}},
		{"1,1", {-1, DEVICE_TWICE, -1}},
		{"0,2,1,2", {0, 2, DEVICE_TWICE}},
		{"GPU-abcd,GPU-abcdef", {-1, -1, DEVICE_TWICE}},
		{"0,9,0", {0, -1, -1}},
		{"0abc,0x1", {DEVICE_TWICE, -1, -1}},
		{"+1,,0", {-1, 0, -1}},
		{",0", {-1, -1, -1}},
		{"GPU-11223344-55", {0, -1, -1}},
		{"GPU-1122", {-1, -1, -1}},
		{"GPU-", {-1, -1, -1}},
		{"none", {-1, -1, -1}},
		{"", {-1, -1, -1}},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i)
		for (int k = 0; k < 3; ++k)
			ck_assert_msg(device_ordinal(rows[i].visible, k, 3, uuids) == rows[i].ordinal[k],
				"list '%s', device %d", rows[i].visible ? rows[i].visible : "(none)", k);
}

TEST(visible, lists_that_hide_everything)
{
	ck_assert(!device_all_hidden(NULL));
	ck_assert(!device_all_hidden("0"));
	ck_assert(!device_all_hidden("GPU-11"));
	ck_assert(device_all_hidden(""));
	ck_assert(device_all_hidden(" "));
	ck_assert(device_all_hidden("-1"));
	ck_assert(device_all_hidden("-1,0"));
}

TEST(visible, lists_of_mig_devices)
{
	ck_assert(!device_is_mig(NULL));
	ck_assert(!device_is_mig(""));
	ck_assert(!device_is_mig("0"));
	/* The list ends at its first entry that is none of its kind. */
	ck_assert(!device_is_mig("GPU-11,MIG-11"));
	ck_assert(device_is_mig("MIG-11223344-5566-7788-9900-aabbccddeeff"));
	ck_assert(device_is_mig(" MIG-GPU-11223344-5566-7788-9900-aabbccddeeff/1/0,0"));
}

static bool is_free(const uint64_t *words, unsigned int window)
{
	return words[window / 64] >> (window % 64) & 1;
}

TEST(visible, windows_that_are_free)
{
	uint64_t words[WINDOW_WORDS];

	connect_free_windows("", NULL, words);
	for (unsigned int i = 0; i < WINDOWS; ++i)
		ck_assert(is_free(words, i));
	/* One page below the grid, the last page of window 0, a range over windows 2 to 4, and the
	 * top of everything. */
	connect_free_windows("0ffffffff000-100000000000 r-xp 00000000 08:01 1 /bin/true\n"
			     "103ffffff000-104000000000 rw-p 00000000 00:00 0\n"
			     "108000000000-110000001000 rw-p 00000000 00:00 0 [heap]\n"
			     "7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n"
			     "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n",
		NULL, words);
	ck_assert(!is_free(words, 0));
	ck_assert(is_free(words, 1));
	for (unsigned int i = 2; i <= 4; ++i)
		ck_assert(!is_free(words, i));
	for (unsigned int i = 5; i < WINDOWS - 1; ++i)
		ck_assert(is_free(words, i));
	ck_assert(!is_free(words, WINDOWS - 1));
}

/* Windows of the session: a half of window 1, and behind it window 2 and a part of window 3. */
static uint64_t end_of_own(uint64_t address)
{
	const uint64_t from = WINDOW_BASE + WINDOW_BYTES + WINDOW_BYTES / 2,
		       between = from + WINDOW_BYTES / 2, to = WINDOW_BASE + 3 * WINDOW_BYTES + 4096;

	if (address < from || address >= to)
		return 0;
	return address < between ? between : to;
}

TEST(visible, own_windows_are_free)
{
	uint64_t words[WINDOW_WORDS];

	connect_free_windows("106000000000-10c000001000 ---p 00000000 00:00 0\n", end_of_own, words);
	for (unsigned int i = 0; i < WINDOWS; ++i)
		ck_assert(is_free(words, i));
	/* Somebody else's pages behind them, which the kernel has joined. */
	connect_free_windows("106000000000-110000001000 ---p 00000000 00:00 0\n", end_of_own, words);
	ck_assert(is_free(words, 1));
	ck_assert(is_free(words, 2));
	ck_assert(!is_free(words, 3));
	ck_assert(!is_free(words, 4));
	ck_assert(is_free(words, 5));
}

int main(void)
{
	Suite *suite = suite_create("visible");
	TCase *cases = suite_case(suite, "visible");

	suite_add(cases, "visible");
	return suite_run(suite);
}
