// Lines that say what is to be done, and what a word has done.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/tools/command.h"
#include "server/tools/manual.h"
#include "tests/lib/suite.h"

static char ran[1024]; /* the words of every line that was run, in brackets */

static int note(void *context, int count, char **arguments)
{
	ck_assert_ptr_eq(context, ran);
	ck_assert_str_eq(arguments[0], "program");
	ck_assert_ptr_null(arguments[count]);
	for (int i = 1; i < count; i++)
		snprintf(ran + strlen(ran), sizeof(ran) - strlen(ran), "[%s]", arguments[i]);
	snprintf(ran + strlen(ran), sizeof(ran) - strlen(ran), ";");
	return strcmp(arguments[1], "fail") ? 0 : atoi(arguments[2]);
}

static const struct {
	const char *text, *ran;
	int code;
} texts[] = {
	{"", "", -1},
	{"\n \t\n", "", -1},
	{"one\n", "[one];", 0},
	{"one", "[one];", 0},
	{"  one\ttwo  three \r\n\nfour\n", "[one][two][three];[four];", 0},
	{"fail 3\none\n", "[fail][3];[one];", 3},
	{"fail 3\nfail 5\none", "[fail][3];[fail][5];[one];", 5},
	{"one\nquit -t 5\ntwo\n", "[one];[quit][-t][5];", 0},
	{"quitter\ntwo\n", "[quitter];[two];", 0},
	{"a b c d e f g h i j k l m n o p q\n", "[a][b][c][d][e][f][g][h][i][j][k][l][m][n][o];", 0},
};

TEST_LOOP(command, lines_are_run_in_turn, 0, sizeof(texts) / sizeof(*texts))
{
	FILE *in = tmpfile();

	ck_assert_ptr_nonnull(in);
	fputs(texts[_i].text, in);
	rewind(in);
	*ran = '\0';
	ck_assert_int_eq(command_read(in, "program", note, ran), texts[_i].code);
	ck_assert_str_eq(ran, texts[_i].ran);
	fclose(in);
}

static int run(const struct call *call)
{
	snprintf(ran, sizeof(ran), "%s %d %s%s", call->name, call->count,
		call->count ? call->arguments[0] : "-", call->json ? " json" : "");
	return 7;
}

static const struct command rows[] = {
	{"ps", run}, {"quit", run}, {"ping", run}, {"get_device_pinned_mem_limit", run}};
static const struct commands commands = {&manual_ctl, rows, sizeof(rows) / sizeof(rows[0])};

TEST(command, words_find_their_function)
{
	char *words[] = {(char *)"ps", (char *)"-p", (char *)"7", (char *)"8"};
	struct call call = {.program = "test", .path = "/nonexistent/frmps.sock"};

	ck_assert(command_takes_all(&commands, 1, words));
	ck_assert_int_eq(command_run(&commands, &call, 3, words), 7);
	ck_assert_str_eq(ran, "ps 2 -p");
	ck_assert_int_eq(command_run(&commands, &call, 4, words), 64);
	words[0] = (char *)"ping";
	ck_assert(!command_takes_all(&commands, 1, words));
	ck_assert_int_eq(command_run(&commands, &call, 1, words), 7);
	ck_assert_str_eq(ran, "ping 0 -");
	words[0] = (char *)"nonsense";
	ck_assert(!command_takes_all(&commands, 1, words));
	ck_assert_int_eq(command_run(&commands, &call, 1, words), 64);
	ck_assert_int_eq(command_run(&commands, &call, 0, words), 64);
}

/* Wherever it stands behind such a command, it is ours. */
TEST(command, json_is_no_word_of_a_verb)
{
	char *words[] = {(char *)"get_device_pinned_mem_limit", (char *)"7", (char *)"--json", (char *)"0"};
	char *listed[] = {(char *)"ps", (char *)"--json"};
	char *quit[] = {(char *)"quit", (char *)"--json"};
	struct call call = {.program = "test", .path = "/nonexistent/frmps.sock"},
		    other = {.program = "test", .path = "/nonexistent/frmps.sock"};

	ck_assert_int_eq(command_run(&commands, &call, 4, words), 7);
	ck_assert_str_eq(ran, "get_device_pinned_mem_limit 2 7 json");
	*ran = '\0';
	/* Nobody says how many devices are to be in the list. */
	ck_assert_int_eq(command_run(&commands, &other, 2, listed), 69);
	ck_assert_int_eq(command_run(&commands, &other, 2, quit), 64);
	ck_assert_str_eq(ran, "");
}

int main(void)
{
	Suite *suite = suite_create("command");
	TCase *tests = suite_case(suite, "command");

	suite_add(tests, "command");
	return suite_run(suite);
}
