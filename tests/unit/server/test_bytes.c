// Numbers of bytes as texts.

#include "server/bytes.h"
#include "tests/lib/suite.h"

static const struct {
	uint64_t bytes;
	const char *text;
} rows[] = {
	{0, "0"},
	{100, "100"},
	{1023, "1023"},
	{1024, "1K"},
	{1536, "1536"},
	{1572864, "1536K"},
	{UINT64_C(4090) << 20, "4090M"},
	{UINT64_C(192) << 30, "192G"},
	{(UINT64_C(192) << 30) + 1, "192G"},
	{(UINT64_C(25) << 29), "12.5G"},
	{(UINT64_C(25) << 29) + 1, "12.5G"},
	{(UINT64_C(3) << 40), "3T"},
	{UINT64_MAX, "16777216T"},
};

TEST_LOOP(bytes, bytes_are_written_as_the_configuration_does, 0, sizeof(rows) / sizeof(rows[0]))
{
	char text[BYTES_TEXT];

	ck_assert_str_eq(bytes_text(text, rows[_i].bytes), rows[_i].text);
	ck_assert_str_eq(BYTES_OF(rows[_i].bytes), rows[_i].text);
}

int main(void)
{
	Suite *suite = suite_create("bytes");
	TCase *tests = suite_case(suite, "bytes");

	suite_add(tests, "bytes");
	return suite_run(suite);
}
