// frmpsctl cdi: what a container runtime reads.

#include <stdlib.h>
#include <string.h>

#include "server/tools/cdi.h"
#include "tests/lib/suite.h"

TEST(cdi, a_container_gets_socket_and_library)
{
	json_t *made = cdi_make("gpu-1", "/run/frmps-1/frmps.sock", "/usr/lib/frmps", ""), *wanted;

	wanted = json_loads(
		"{\"cdiVersion\": \"0.5.0\", \"kind\": \"frmps/gpu\", \"devices\": [{\"name\": \"gpu-1\","
		"\"containerEdits\": {\"env\": [\"FRMPS_SOCKET=/run/frmps-1/frmps.sock\","
		"\"LD_LIBRARY_PATH=/usr/lib/frmps\"], \"mounts\": ["
		"{\"hostPath\": \"/run/frmps-1\", \"containerPath\": \"/run/frmps-1\","
		"\"options\": [\"ro\", \"nosuid\", \"nodev\", \"bind\"]},"
		"{\"hostPath\": \"/usr/lib/frmps\", \"containerPath\": \"/usr/lib/frmps\","
		"\"options\": [\"ro\", \"nosuid\", \"nodev\", \"bind\"]}]}}]}",
		0, NULL);
	ck_assert_ptr_nonnull(wanted);
	ck_assert(json_equal(made, wanted));
	json_decref(made);
	json_decref(wanted);
}

TEST(cdi, paths_of_the_image_stay)
{
	json_t *made = cdi_make("0", "/run/frmps/frmps.sock", "/usr/lib/frmps", "/opt/a:/opt/b");
	char *text = json_dumps(made, 0);

	ck_assert_msg(strstr(text, "\"LD_LIBRARY_PATH=/usr/lib/frmps:/opt/a:/opt/b\""), "%s", text);
	free(text);
	json_decref(made);
}

/* A folder of the host that a runtime would look for elsewhere, or all of the host. */
TEST(cdi, paths_that_would_mount_something_else_are_refused)
{
	char longest[1000] = "/";

	memset(longest + 1, 'a', sizeof(longest) - 2);
	ck_assert_ptr_null(cdi_make("0", "frmps.sock", "/usr/lib/frmps", ""));
	ck_assert_ptr_null(cdi_make("0", "/frmps.sock", "/usr/lib/frmps", ""));
	ck_assert_ptr_null(cdi_make("0", "/run/frmps/frmps.sock", "build/client", ""));
	ck_assert_ptr_null(cdi_make("0", "/run/frmps/frmps.sock", longest, ""));
}

TEST(cdi, runtimes_take_the_name)
{
	static const char *const bad[] = {
		"", "-", "a-", ".a", "a b", "a\"b", "a/b", "a\n", "\xff", "\xc3\xa9"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!cdi_is_name(bad[i]), "%s", bad[i]);
	ck_assert(cdi_is_name("0") && cdi_is_name("gpu-1") && cdi_is_name("a_b.c:d"));
}

int main(void)
{
	Suite *suite = suite_create("cdi");
	TCase *cdi = suite_case(suite, "cdi");

	suite_add(cdi, "cdi");
	return suite_run(suite);
}
