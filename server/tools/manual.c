// The tables of the programs, options and --help. See manual.h.

#include "server/tools/manual.h"

#include <getopt.h>
#include <stdarg.h>
#include <string.h>
#include <sysexits.h>

#define WIDTH  80 /* of the output */
#define COLUMN 24 /* where explanations begin */

#define OPTIONS_MAX 24

#define TEXT(paragraph) {MANUAL_TEXT, 0, 0, 0, NULL, "", paragraph},
#define COMMAND(name, arguments, least, most, f, help)                                                       \
	{MANUAL_COMMAND, 0, least, most, name, arguments, help},
#define VERB(name, arguments, least, most, f, help)                                                          \
	{MANUAL_COMMAND, MANUAL_TAKES_ALL, least, most, name, arguments, help},
#define EVENT(kind, bound, help)	     {MANUAL_EVENT, 0, 0, 0, #kind, "", help},
#define OPTION(letter, name, argument, help) {MANUAL_OPTION, letter, 0, 0, name, argument, help},
#define INTERNAL(letter, name, argument)     {MANUAL_INTERNAL, letter, 0, 0, name, argument, ""},
#define VARIABLE(name, values, help)	     {MANUAL_VARIABLE, 0, 0, 0, name, values, help},
#define PLACE(path, help)		     {MANUAL_PLACE, 0, 0, 0, path, "", help},
#define EXAMPLE(command, help)		     {MANUAL_EXAMPLE, 0, 0, 0, command, "", help},
#define EXIT(code, help)		     {MANUAL_EXIT, code, 0, 0, #code, "", help},

static const struct manual_row server_rows[] = {
#include "server/tools/frmps-server.def"
};

static const struct manual_row run_rows[] = {
#include "server/tools/frmps-run.def"
};

static const struct manual_row ctl_rows[] = {
#include "server/tools/frmpsctl.def"
#include "server/session/events.def"
};

static const struct manual_row exporter_rows[] = {
#include "server/tools/frmps-exporter.def"
};

static const struct manual_row mps_rows[] = {
#include "server/tools/nvidia-cuda-mps-control.def"
};

#define ROWS(list) .rows = list, .count = sizeof(list) / sizeof(list[0])

const struct manual manual_server = {
	.program = "frmps-server",
	.section = 8,
	.synopsis = "[OPTION]...\n--check-config [FILE]\n--help-config",
	.about = "the service that lets programs share a GPU and survive each other's faults",
	.see = "frmps-run 1,frmpsctl 1,frmps.conf 5",
	ROWS(server_rows),
};

const struct manual manual_run = {
	.program = "frmps-run",
	.section = 1,
	.synopsis = "[OPTION]... PROGRAM [ARGUMENT]...",
	.about = "run a program with its CUDA calls going to the frmps service",
	.see = "frmpsctl 1,frmps-server 8",
	ROWS(run_rows),
};

const struct manual manual_ctl = {
	.program = "frmpsctl",
	.section = 1,
	.synopsis = "[--socket PATH] COMMAND [ARGUMENT]...\nCOMMAND --help",
	.about = "ask and control the frmps service",
	.see = "frmps-run 1,frmps.conf 5,frmps-server 8",
	ROWS(ctl_rows),
};

const struct manual manual_exporter = {
	.program = "frmps-exporter",
	.section = 1,
	.synopsis = "[--listen ADDRESS:PORT] [--socket PATH]",
	.about = "tell Prometheus what the frmps service does",
	.see = "frmpsctl 1,frmps-server 8",
	ROWS(exporter_rows),
};

const struct manual manual_mps = {
	.program = "nvidia-cuda-mps-control",
	.synopsis = "-d [-a FILE] | -f | -q | -v\n[VERB [ARGUMENT]...]",
	.letters = "a:dfMmp:qSvh",
	ROWS(mps_rows),
};

int manual_option(const struct manual *manual, int count, char **arguments, int stops)
{
	struct option list[OPTIONS_MAX + 1] = {0};
	char letters[OPTIONS_MAX];
	size_t used = 0;

	for (size_t i = 0; i < manual->count && used < OPTIONS_MAX; i++) {
		const struct manual_row *row = &manual->rows[i];

		if (row->kind != MANUAL_OPTION && row->kind != MANUAL_INTERNAL)
			continue;
		list[used++] = (struct option){.name = row->name,
			.has_arg = !row->argument[0]	     ? no_argument
				   : row->argument[0] == '[' ? optional_argument
							     : required_argument,
			.val = row->number};
	}
	if (manual->letters) {
		snprintf(letters, sizeof(letters), "%s%s", stops ? "+" : "", manual->letters);
		return getopt_long_only(count, arguments, letters, list, NULL);
	}
	return getopt_long(count, arguments, stops ? "+h" : "h", list, NULL);
}

/* Prints words from a column on, which is the line's present column. */
static void print_wrapped(FILE *out, const char *text, int column)
{
	int at = column;

	while (*text) {
		int length = (int)strcspn(text, " ");

		if (at > column && at + 1 + length > WIDTH) {
			fprintf(out, "\n%*s", column, "");
			at = column;
		}
		at += fprintf(out, "%s%.*s", at > column ? " " : "", length, text);
		text += length + (text[length] == ' ');
	}
	fputc('\n', out);
}

static void print_item(FILE *out, const char *term, const char *help)
{
	int used = fprintf(out, "  %s", term);

	if (used + 2 > COLUMN) {
		fputc('\n', out);
		used = 0;
	}
	fprintf(out, "%*s", COLUMN - used, "");
	print_wrapped(out, help, COLUMN);
}

static void print_row(FILE *out, const struct manual_row *row)
{
	const char *mark = row->kind == MANUAL_OPTION ? "--" : "",
		   *join = row->kind == MANUAL_VARIABLE ? "=" : " ";
	char term[160];

	if (row->kind == MANUAL_OPTION && row->argument[0] == '[')
		join = "";
	snprintf(term, sizeof(term), "%s%s%s%s%s", row->number == 'h' ? "-h, " : "", mark, row->name,
		row->argument[0] ? join : "", row->argument);
	print_item(out, term, row->help);
}

static void print_rows(const struct manual *manual, enum manual_kind kind, const char *title, FILE *out)
{
	int count = 0;

	for (size_t i = 0; i < manual->count; i++) {
		if (manual->rows[i].kind != kind)
			continue;
		if (!count++)
			fprintf(out, "\n%s:\n", title);
		print_row(out, &manual->rows[i]);
	}
}

static void print_usage(const struct manual *manual, FILE *out)
{
	const char *at = manual->synopsis;

	for (const char *lead = "usage:"; at; lead = "      ") {
		int length = (int)strcspn(at, "\n");

		fprintf(out, "%s %s %.*s\n", lead, manual->program, length, at);
		at = at[length] ? at + length + 1 : NULL;
	}
}

int manual_flush(FILE *out)
{
	return fflush(out) || ferror(out) ? 1 : 0;
}

int manual_help(const struct manual *manual, FILE *out)
{
	print_usage(manual, out);
	for (size_t i = 0; i < manual->count; i++) {
		if (manual->rows[i].kind != MANUAL_TEXT)
			continue;
		fputc('\n', out);
		print_wrapped(out, manual->rows[i].help, 0);
	}
	print_rows(manual, MANUAL_COMMAND, "Commands", out);
	print_rows(manual, MANUAL_EVENT, "Events", out);
	print_rows(manual, MANUAL_OPTION, "Options", out);
	print_rows(manual, MANUAL_VARIABLE, "Environment", out);
	print_rows(manual, MANUAL_EXIT, "Exit status", out);
	if (manual->section)
		fprintf(out, "\nMore: man %d %s\n", manual->section, manual->program);
	return manual_flush(out);
}

int manual_help_command(const struct manual *manual, const struct manual_row *command, FILE *out)
{
	fprintf(out, "usage: %s %s%s%s\n\n", manual->program, command->name, command->argument[0] ? " " : "",
		command->argument);
	print_wrapped(out, command->help, 0);
	return manual_flush(out);
}

/* Compares arguments with the words of a name. Return: their number, 0 if they differ */
static int match_words(const char *name, int count, char *const *arguments)
{
	int words = 0;

	for (const char *at = name; *at; words++) {
		size_t length = strcspn(at, " ");

		if (words == count || strlen(arguments[words]) != length ||
			strncmp(at, arguments[words], length))
			return 0;
		at += length + (at[length] == ' ');
	}
	return words;
}

const struct manual_row *manual_command(
	const struct manual *manual, int count, char *const *arguments, int *ret_words)
{
	const struct manual_row *best = NULL;
	int most = 0;

	for (size_t i = 0; i < manual->count; i++) {
		const struct manual_row *row = &manual->rows[i];
		int words = row->kind == MANUAL_COMMAND ? match_words(row->name, count, arguments) : 0;

		if (words > most) {
			most = words;
			best = row;
		}
	}
	*ret_words = most;
	return best;
}

/* Bytes that differ between two words: changed, added or omitted (Levenshtein's distance), of words
 * below 32 bytes. */
static unsigned distance(const char *left, size_t left_length, const char *right, size_t right_length)
{
	unsigned row[33];

	for (unsigned j = 0; j <= right_length; j++)
		row[j] = j;
	for (unsigned i = 1; i <= left_length; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= right_length; j++) {
			unsigned changed = diagonal + (left[i - 1] != right[j - 1]);
			unsigned shifted = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = changed < shifted ? changed : shifted;
		}
	}
	return row[right_length];
}

const char *manual_nearest(const struct manual *manual, const char *word)
{
	const char *best = NULL;
	unsigned least = 3, now; /* two typing errors */

	for (size_t i = 0; i < manual->count; i++) {
		const struct manual_row *row = &manual->rows[i];

		if (row->kind != MANUAL_COMMAND || strlen(word) > 32 || strlen(row->name) > 32)
			continue;
		now = distance(word, strlen(word), row->name, strlen(row->name));
		if (now < least && now < strlen(word)) {
			least = now;
			best = row->name;
		}
	}
	return best;
}

int manual_wrong(const struct manual *manual, const char *format, ...)
{
	va_list arguments;

	if (format) {
		fprintf(stderr, "%s: ", manual->program);
		va_start(arguments, format);
		vfprintf(stderr, format, arguments);
		va_end(arguments);
		fputc('\n', stderr);
	}
	fprintf(stderr, "Try '%s --help'.\n", manual->program);
	return EX_USAGE;
}
