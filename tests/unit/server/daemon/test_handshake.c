// What a Hello may say, and what of it comes into the log.

#include "protocol/command.h"
#include "protocol/cuda_abi.h"
#include "server/daemon/handshake.h"
#include "server/session/window.h"
#include "tests/lib/suite.h"

TEST(handshake, hello_is_checked)
{
	struct wire_hello hello = {
		.major = FRMPS_PROTOCOL_MAJOR, .window_base = WINDOW_GRID_BASE, .window_bytes = WINDOW_BYTES};
	const char *text;
	int32_t code;

	ck_assert_int_eq(handshake_check(&hello, &code, &text), 0);
	hello.major = FRMPS_PROTOCOL_MAJOR + 1;
	ck_assert_int_ne(handshake_check(&hello, &code, &text), 0);
	ck_assert_int_eq(code, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
	hello.major = FRMPS_PROTOCOL_MAJOR;
	hello.window_bytes++;
	ck_assert_int_ne(handshake_check(&hello, &code, &text), 0);
	hello.window_bytes--;
	hello.recovery = 3;
	ck_assert_int_ne(handshake_check(&hello, &code, &text), 0);
}

TEST(handshake, names_cannot_garble_the_log)
{
	char copy[8];

	handshake_copy_name(copy, sizeof(copy), "a\nb\x1b");
	ck_assert_str_eq(copy, "a?b?");
	handshake_copy_name(copy, sizeof(copy), "123456789");
	ck_assert_str_eq(copy, "1234567");
	handshake_copy_name(copy, sizeof(copy), "a\xff\xe9");
	ck_assert_str_eq(copy, "a??");
	/* What is cut is no character any more. */
	handshake_copy_name(copy, sizeof(copy), "12345\xe2\x82\xac");
	ck_assert_str_eq(copy, "12345??");
}

int main(void)
{
	Suite *suite = suite_create("handshake");
	TCase *tests = suite_case(suite, "handshake");

	suite_add(tests, "handshake");
	return suite_run(suite);
}
