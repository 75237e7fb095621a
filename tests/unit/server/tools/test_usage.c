// What the programs say when they are asked for help, are used in a wrong way, or are given a file
// that is no program; what --check-config says of a configuration. Their paths come by
// FRMPS_TEST_SERVER, FRMPS_TEST_RUN and FRMPS_TEST_CTL.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/suite.h"

#define SERVER "\"$FRMPS_TEST_SERVER\" "
#define RUN    "\"$FRMPS_TEST_RUN\" "
#define CTL    "\"$FRMPS_TEST_CTL\" "
#define NATIVE RUN "--allow-native --socket /nonexistent "

/* More than any help is long. */
#define OUTPUT_MAX 32768

static char folder[64];

/* Runs a line of shell. *ret_output (OUTPUT_MAX bytes): its standard output. Return: exit code */
static int shell(const char *line, char *ret_output)
{
	FILE *pipe = popen(line, "re");
	size_t length;
	int status;

	ck_assert_ptr_nonnull(pipe);
	length = fread(ret_output, 1, OUTPUT_MAX - 1, pipe);
	ret_output[length] = '\0';
	ck_assert_uint_lt(length, OUTPUT_MAX - 1);
	status = pclose(pipe);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void set_up(void)
{
	strcpy(folder, "/tmp/frmps-usage-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	setenv("XDG_RUNTIME_DIR", folder, 1);
}

static void tear_down(void)
{
	char line[128], output[OUTPUT_MAX];

	snprintf(line, sizeof(line), "cd / && rm -rf %s", folder);
	ck_assert_int_eq(shell(line, output), 0);
}

static const char *const helps[] = {SERVER "-h", SERVER "--help", RUN "-h", RUN "--help", CTL "-h",
	CTL "--help", CTL "status --help", CTL "-h quarantine lift", CTL "events --help", CTL "ps --help",
	CTL "quit -h", "echo ps --help | " CTL};

TEST_LOOP(usage, help_is_an_answer, 0, sizeof(helps) / sizeof(helps[0]))
{
	char line[256], output[OUTPUT_MAX];

	snprintf(line, sizeof(line), "%s 2>&1 >/dev/null", helps[_i]);
	ck_assert_int_eq(shell(line, output), 0);
	ck_assert_str_eq(output, "");
	ck_assert_int_eq(shell(helps[_i], output), 0);
	ck_assert_msg(!strncmp(output, "usage: frmps", 12), "%s", output);
	for (const char *at = output; *at; at += strcspn(at, "\n") + 1)
		ck_assert_uint_le(strcspn(at, "\n"), 100);
}

static const char *const unwritten[] = {SERVER "--help", SERVER "--version", SERVER "--help-config",
	SERVER "--check-config /dev/null", RUN "--help", RUN "--version", CTL "--help", CTL "--version",
	CTL "status --help"};

TEST_LOOP(usage, an_answer_that_cannot_be_written_is_an_error, 0, sizeof(unwritten) / sizeof(unwritten[0]))
{
	char line[256], output[OUTPUT_MAX];

	snprintf(line, sizeof(line), "%s >/dev/full", unwritten[_i]);
	ck_assert_int_eq(shell(line, output), 1);
}

TEST(usage, help_of_a_command_is_its_own)
{
	char output[OUTPUT_MAX];

	ck_assert_int_eq(shell(CTL "quarantine lift --help", output), 0);
	ck_assert_msg(!strncmp(output, "usage: frmpsctl quarantine lift NUMBER\n", 39), "%s", output);
	ck_assert_ptr_null(strstr(output, "isolate"));
}

static const struct {
	const char *line, *says;
} wrong[] = {
	{SERVER "--nonsense", "nonsense"},
	{SERVER "nonsense", "unexpected argument 'nonsense'"},
	{SERVER "--standbys 99", "standbys: 99 is out of range, allowed is 0 to 8"},
	{SERVER "--backend gpu/b", "backend: \"gpu/b\" is neither a name nor an absolute path"},
	{SERVER "--socket", "requires an argument"},
	{SERVER "--check-config --standbys 99", "standbys: 99 is out of range"},
	{SERVER "--check-config --socket a --socket a --socket a --socket a --socket a --socket a --socket a "
		"--socket a --standbys 99",
		"standbys: 99 is out of range"},
	{RUN "", "no program is named"},
	{RUN "--nonsense true", "nonsense"},
	{RUN "--recovery maybe true", "--recovery is fail or replay, not 'maybe'"},
	{CTL "", "no command is given"},
	{CTL "--nonsense ping", "nonsense"},
	{CTL "nonsense", "unknown command 'nonsense'\n"},
	{CTL "isoltae 7", "unknown command 'isoltae'; the nearest is 'isolate'\n"},
	{CTL "isolate", "isolate needs SESSION"},
	{CTL "recovery 7", "recovery needs SESSION fail|replay"},
	{CTL "status 7", "status: unexpected argument '7'"},
	{CTL "quarantine 7", "quarantine: unexpected argument '7'"},
	{CTL "ping --json", "ping has no --json"},
	{CTL "terminate_client 1", "terminate_client needs SERVER CLIENT"},
	{CTL "lspart all", "lspart: unexpected argument 'all'"},
	{CTL "--json quit", "quit has no --json"},
	{"echo isoltae 7 | " CTL, "unknown command 'isoltae'; the nearest is 'isolate'\n"},
	{"echo | " CTL, "no command is given"},
	{CTL "cdi ''", "cdi: '' is no name"},
	{CTL "faults --follow", "faults has no --follow"},
	{CTL "pause 1 --now", "pause has no --now"},
	{CTL "pause 1 --end", "pause has no --end"},
	{CTL "restore a --since b", "restore has no --since"},
};

TEST_LOOP(usage, wrong_usage_is_one_line, 0, sizeof(wrong) / sizeof(wrong[0]))
{
	char line[256], output[OUTPUT_MAX];

	ck_assert_int_eq(shell(wrong[_i].line, output), 64);
	ck_assert_str_eq(output, "");
	snprintf(line, sizeof(line), "%s 2>&1", wrong[_i].line);
	ck_assert_int_eq(shell(line, output), 64);
	ck_assert_msg(strstr(output, wrong[_i].says) != NULL, "%s", output);
	ck_assert_ptr_nonnull(strchr(output, '\n'));
	ck_assert_msg(!strncmp(strchr(output, '\n'), "\nTry 'frmps", 11), "%s", output);
	ck_assert_uint_lt(strlen(output), 300);
}

/* How a file is made, how it is run, what is said of it. */
static const struct {
	const char *make, *name;
	int code;
	const char *says;
} unrunnable[] = {
	{"true", "./it", 127, "./it: there is no such program"},
	{"true", "no-such-program-anywhere", 127, "there is no such program in PATH"},
	{"echo '#!/bin/sh' >it", "./it", 126, "./it: permission denied"},
	{"echo '#!/bin/sh' >it", "it", 126, "it: permission denied"},
	{"mkdir it", "./it", 126, "./it: Is a directory"},
	{"printf '\\177ELF nonsense' >it; chmod +x it", "./it", 126, "./it: wrong format"},
	{"echo '#!/nonexistent/sh' >it; chmod +x it", "./it", 126, "./it: its interpreter"},
};

TEST_LOOP(usage, a_file_that_is_no_program_is_told_apart, 0, sizeof(unrunnable) / sizeof(unrunnable[0]))
{
	char line[256], output[OUTPUT_MAX];

	setenv("PATH", ".:/usr/bin:/bin", 1);
	snprintf(line, sizeof(line), "%s; " NATIVE "%s 2>&1", unrunnable[_i].make, unrunnable[_i].name);
	ck_assert_int_eq(shell(line, output), unrunnable[_i].code);
	ck_assert_msg(strstr(output, unrunnable[_i].says) != NULL, "%s", output);
}

static const struct {
	const char *file; /* NULL: there is none */
	int code;
	const char *says;
} checked[] = {
	{"standbys = 2 # two\n", 0, "conf: no errors\n"},
	{"standbys = 2\n\nstandby = 2\n", 78, "conf:3: standby: no such key"},
	{"standbys = 2\nstandbys = 3\n", 78, "conf:2: standbys: line 1 sets it already\n"},
	{"memory_guarantee = 2G\nmemory_limit = 1G\n", 78,
		"conf:2: memory_guarantee is more than memory_limit\n"},
	{"memory_limit = 1G\n[user 7]\nmemory_guarantee = 1G\n[program /a*]\nmemory_limit = "
	 "1G\nmemory_guarantee = 2G\n",
		78, "conf:6: memory_guarantee is more than memory_limit\n"},
	{"memory_limit = 1G\n[user 7]\nweight = 2\nmemory_guarantee = 2G\n", 78,
		"conf:4: memory_guarantee is more than memory_limit\n"},
	{"memory_limit = 1G\n[user 7]\nmemory_guarantee = 2G\nmemory_limit = 0\n", 0, "conf: no errors\n"},
	{"memory_policy = ask\n", 78, "conf:1: memory_policy: \"ask\" is not one of refuse|evict|swap\n"},
	{"memory_guarantee = 193G\n", 78, "conf:1: memory_guarantee: 207232172032 is out of range"},
	{"memory_limit = 1\n[user 7]\nclients_max = 3\n", 78,
		"conf:3: clients_max: is for the whole service"},
	{"[group staff]\n", 78,
		"conf:1: a section is [user NAME], [cgroup PATTERN], [program PATTERN] or [device NUMBER]\n"},
	{"[user nobody at all]\n", 78, "conf:1: there is no user nobody at all\n"},
	{"[program python3]\n", 78, "conf:1: python3: a path begins with /\n"},
	{"guard = maybe\n", 78, "conf:1: guard: \"maybe\" is not one of error|warn|off\n"},
	{"memory_limit = lots\n", 78, "conf:1: memory_limit: \"lots\" is not a number of bytes"},
	{"memory_limit\n", 78, "conf:1: not a line of the form \"key = value\"\n"},
	{NULL, 78, "conf: No such file or directory\n"},
};

TEST_LOOP(usage, configuration_is_checked, 0, sizeof(checked) / sizeof(checked[0]))
{
	static const char *const ways[] = {
		"--check-config conf", "--check-config=conf", "--config conf --check-config"};
	FILE *file = checked[_i].file ? fopen("conf", "we") : NULL;
	char line[256], output[OUTPUT_MAX];

	if (file) {
		fputs(checked[_i].file, file);
		fclose(file);
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		snprintf(line, sizeof(line), SERVER "%s 2>&1", ways[i]);
		ck_assert_int_eq(shell(line, output), checked[_i].code);
		ck_assert_msg(!strncmp(output, checked[_i].says, strlen(checked[_i].says)), "%s", output);
	}
	if (checked[_i].code) {
		ck_assert_int_eq(shell(SERVER "--config conf 2>&1", output), 78);
		ck_assert_ptr_nonnull(strstr(output, checked[_i].says));
	}
}

TEST(usage, sample_configuration_is_good_as_it_is)
{
	char output[OUTPUT_MAX];

	ck_assert_int_eq(shell(SERVER "--help-config >conf && " SERVER "--check-config conf", output), 0);
	ck_assert_str_eq(output, "conf: no errors\n");
	/* Every line is a comment. */
	ck_assert_int_eq(shell("grep -v '^#' conf | grep .", output), 1);
}

int main(void)
{
	Suite *suite = suite_create("usage");
	TCase *tests = suite_case(suite, "usage");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "usage");
	return suite_run(suite);
}
