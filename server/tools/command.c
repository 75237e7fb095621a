// Commands of operators' programs. See command.h.

#include "server/tools/command.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "server/tools/ask.h"
#include "server/tools/manual.h"
#include "server/tools/span.h"

static int wrong_command(const struct manual *manual, int count, char **words)
{
	const char *near = count ? manual_nearest(manual, words[0]) : NULL;

	if (!count)
		return manual_wrong(manual, "no command is given");
	if (near)
		return manual_wrong(manual, "unknown command '%s'; the nearest is '%s'", words[0], near);
	return manual_wrong(manual, "unknown command '%s'", words[0]);
}

/* Return: 0 to go on, or EX_USAGE */
static int check_arguments(const struct manual *manual, const struct manual_row *row, const struct call *call)
{
	if (call->count < row->least)
		return manual_wrong(manual, "%s needs %s", row->name, row->argument);
	if (call->count > row->most)
		return manual_wrong(
			manual, "%s: unexpected argument '%s'", row->name, call->arguments[row->most]);
	if (call->json && !strstr(row->argument, "--json"))
		return manual_wrong(manual, "%s has no --json", row->name);
	if (call->follow && !strstr(row->argument, "--follow"))
		return manual_wrong(manual, "%s has no --follow", row->name);
	if (call->now && !strstr(row->argument, "--now"))
		return manual_wrong(manual, "%s has no --now", row->name);
	if (call->end && !strstr(row->argument, "--end"))
		return manual_wrong(manual, "%s has no --end", row->name);
	if (call->since && !strstr(row->argument, "--since"))
		return manual_wrong(manual, "%s has no --since", row->name);
	return 0;
}

/* For a command that parses its options itself. */
static bool wants_help(const struct manual_row *row, const struct call *call)
{
	return row->number == MANUAL_TAKES_ALL && call->count == 1 &&
	       (!strcmp(call->arguments[0], "--help") || !strcmp(call->arguments[0], "-h"));
}

/* Removes --json from the words after a command that parses its options itself. */
static void take_json(struct call *call)
{
	int kept = 0;

	for (int i = 0; i < call->count; i++) {
		if (!strcmp(call->arguments[i], "--json"))
			call->json = true;
		else
			call->arguments[kept++] = call->arguments[i];
	}
	call->count = kept;
}

int command_run(const struct commands *commands, struct call *call, int count, char **words)
{
	const struct manual *manual = commands->manual;
	int used, r;
	const struct manual_row *row = manual_command(manual, count, words, &used);

	if (!row)
		return wrong_command(manual, count, words);
	call->name = row->name;
	call->count = count - used;
	call->arguments = words + used;
	if (wants_help(row, call))
		return command_help(commands, count, words);
	if (row->number == MANUAL_TAKES_ALL)
		take_json(call);
	r = check_arguments(manual, row, call);
	for (size_t i = 0; !r && i < commands->count; i++)
		if (!strcmp(commands->rows[i].name, row->name))
			return span_run(call, commands->rows[i].run);
	return r;
}

int command_help(const struct commands *commands, int count, char **words)
{
	int used;
	const struct manual_row *row = manual_command(commands->manual, count, words, &used);

	return row ? manual_help_command(commands->manual, row, stdout)
		   : manual_help(commands->manual, stdout);
}

bool command_takes_all(const struct commands *commands, int count, char **words)
{
	int used;
	const struct manual_row *row = manual_command(commands->manual, count, words, &used);

	return row && row->number == MANUAL_TAKES_ALL;
}

/* Appends the words of a line, which is changed, to the first word. Return: their number then */
static int split(char *line, char *words[COMMAND_WORDS_MAX + 1])
{
	char *rest = NULL;
	int count = 1;

	for (char *word = strtok_r(line, " \t\r\n", &rest); word && count < COMMAND_WORDS_MAX;
		word = strtok_r(NULL, " \t\r\n", &rest))
		words[count++] = word;
	words[count] = NULL;
	return count;
}

int command_read(
	FILE *in, const char *program, int (*run)(void *context, int count, char **arguments), void *context)
{
	char *line = NULL, *words[COMMAND_WORDS_MAX + 1];
	size_t room = 0;
	int outcome = -1;
	bool quits = false;

	while (!quits && getline(&line, &room, in) >= 0) {
		int count = split(line, words), r;

		if (count == 1)
			continue;
		quits = !strcmp(words[1], "quit");
		words[0] = (char *)program;
		r = run(context, count, words);
		/* The output of a line is complete before the next line is read. */
		if (!r)
			r = manual_flush(stdout);
		outcome = r || outcome < 0 ? r : outcome;
	}
	free(line);
	return outcome;
}

int command_print(json_t *root)
{
	json_dumpf(root, stdout, JSON_INDENT(2));
	json_decref(root);
	puts("");
	return manual_flush(stdout);
}

int call_fail(const struct call *call, int error, const char *text)
{
	fprintf(stderr, "%s: %s%s\n", call->program, text,
		error == ASK_E_REFUSED ? "" : " (frmpsctl doctor says what to do)");
	return error == ASK_E_REFUSED ? 1 : EX_UNAVAILABLE;
}

int call_try(const struct call *call, const char *command, const struct wire_names *arguments,
	unsigned seconds, json_t **ret_root, char *ret_text, size_t size)
{
	json_error_t error;
	char *answer;
	int r = ask_with(call->path, command, arguments, seconds, &answer, ret_text, size);

	if (r)
		return r;
	*ret_root = json_loads(answer, 0, &error);
	free(answer);
	if (*ret_root)
		return 0;
	snprintf(ret_text, size, "the answer cannot be read: %s", error.text);
	return ASK_E_REFUSED;
}

json_t *call_ask(const struct call *call, const char *command, const struct wire_names *arguments,
	unsigned seconds, int *ret_code)
{
	char text[2400];
	json_t *root;
	int r = call_try(call, command, arguments, seconds, &root, text, sizeof(text));

	if (!r)
		return root;
	*ret_code = call_fail(call, r, text);
	return NULL;
}
