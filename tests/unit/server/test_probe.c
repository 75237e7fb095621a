// The process that looks whether the driver works here, as the service sees it: it answers,
// crashes, or hangs.

#include "server/probe.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/script.h"
#include "tests/lib/suite.h"

#define PATIENCE_MS 20000u

static struct probe_answer answer;

/* A program that does something else instead. */
static void ask(const char *script, unsigned patience_ms)
{
	char *environment[] = {(char *)"PATH=/bin:/usr/bin", NULL}, path[64] = "/tmp/frmps-probe-XXXXXX";

	script_make(path, script);
	ck_assert_int_eq(probe_ask(path, "cuda", environment, patience_ms, &answer), 0);
	unlink(path);
	/* Nothing of it is left. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}

TEST(probe, a_driver_that_hangs_is_an_answer)
{
	ask("exec sleep 1000", 100);
	ck_assert_int_eq(answer.device_count, 0);
	ck_assert_str_eq(answer.text, "the driver did not answer within 100 ms");
}

TEST(probe, a_driver_that_crashes_is_an_answer)
{
	ask("kill -SEGV $$", PATIENCE_MS);
	ck_assert_int_eq(answer.device_count, 0);
	ck_assert_str_eq(answer.text, "asking the driver ended the process by signal 11");
}

TEST(probe, what_a_driver_says_is_an_answer)
{
	ask("test \"$*\" = '--role=probe --backend=cuda --control-fd=3' && "
	    "{ printf '\\002\\000\\000\\000\\000\\000\\000\\000\\002'; head -c 5447 /dev/zero; } | "
	    "dd bs=5456 iflag=fullblock >&3 2>/dev/null",
		PATIENCE_MS);
	ck_assert_uint_eq(sizeof(answer), 5456);
	ck_assert_int_eq(answer.device_count, 2);
	ck_assert_uint_eq(answer.exclusive, 2);
	ck_assert_str_eq(answer.text, "");
}

int main(void)
{
	Suite *suite = suite_create("probe");
	TCase *tests = suite_case(suite, "probe");

	suite_add(tests, "probe");
	return suite_run(suite);
}
