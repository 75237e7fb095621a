// Runs at build time only. From the tables behind --help and the configuration's reader, prints
//
//   generate page NAME		a page of the manual, in mdoc: frmps-server, frmps.conf, frmps-run, frmpsctl, frmps-exporter
//   generate completion NAME	completion for bash, of one of the programs; likewise zsh NAME and fish NAME
//
// on standard output. Single process, single thread, owns nothing.

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "server/config/config.h"
#include "server/tools/manual.h"
#include "server/version.h"

/* Of the pages' latest change of form; their contents come from the tables. */
#define DATE "November 25, 2026"

static const struct manual *const manuals[] = {&manual_server, &manual_run, &manual_ctl, &manual_exporter};

/*
 * Text
 */

/* A word, or a part of a line, without a meaning to troff. */
static void put_escaped(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (text[i] == '\\')
			fputs("\\e", stdout);
		else if (text[i] == '-' && (i == 0 || strchr(" -(/[", text[i - 1])))
			fputs("\\-", stdout);
		else
			putchar(text[i]);
	}
}

static bool ends_sentence(const char *at)
{
	return *at == '.' && at[1] == ' ' && (isupper((unsigned char)at[2]) || at[2] == '-');
}

/* A line for each sentence. None of ours begins like a request of troff. */
static void put_text(const char *text)
{
	while (*text) {
		size_t length = 0;

		while (text[length] && !ends_sentence(text + length))
			length++;
		length += text[length] == '.';
		if (*text == '.' || *text == '\'')
			fputs("\\&", stdout);
		put_escaped(text, length);
		putchar('\n');
		text += length + (text[length] == ' ');
	}
}

static void put_upper(const char *text)
{
	for (; *text; text++)
		putchar(toupper((unsigned char)*text));
}

static void put_head(const char *name, int section, const char *about)
{
	printf(".\\\" Made from the tables of the programs: change those.\n.Dd %s\n.Dt ", DATE);
	put_upper(name);
	printf(" %d\n.Os frmps " SERVER_VERSION "\n.Sh NAME\n.Nm %s\n.Nd %s\n", section, name, about);
}

/* @see: "name section,name section" */
static void put_see(const char *see)
{
	puts(".Sh SEE ALSO");
	while (see) {
		const char *comma = strchr(see, ',');

		printf(".Xr %.*s%s\n", (int)strcspn(see, ","), see, comma ? " ," : "");
		see = comma ? comma + 1 : NULL;
	}
}

/*
 * Pages of programs
 */

static void put_synopsis(const struct manual *manual)
{
	puts(".Sh SYNOPSIS");
	for (const char *at = manual->synopsis; at;) {
		size_t length = strcspn(at, "\n");

		printf(".Nm %s\n", manual->program);
		put_escaped(at, length);
		putchar('\n');
		at = at[length] ? at + length + 1 : NULL;
	}
}

/* "SESSION fail|replay", "[--follow] [--json]" */
static void put_arguments(const char *arguments)
{
	for (const char *at = arguments; *at; at += strspn(at, " ")) {
		int length = (int)strcspn(at, " ");

		if (!strncmp(at, "[--", 3))
			printf(" Op Fl -%.*s", length - 4, at + 3);
		else
			printf(" Ar %.*s", length, at);
		at += length;
	}
}

static void put_term(const struct manual_row *row)
{
	fputs(".It ", stdout);
	switch (row->kind) {
	case MANUAL_COMMAND:
		printf("Cm %s", row->name);
		put_arguments(row->argument);
		break;
	case MANUAL_EVENT:
		printf("Cm %s", row->name);
		break;
	case MANUAL_OPTION:
		printf("%sFl -%s", row->number == 'h' ? "Fl h , " : "", row->name);
		if (*row->argument)
			printf("%s Ar %s", *row->argument == '[' ? " Ns" : "", row->argument);
		break;
	case MANUAL_VARIABLE:
		printf("Ev %s Ns = Ns Ar %s", row->name, row->argument);
		break;
	case MANUAL_PLACE:
		printf("Pa %s", row->name);
		break;
	case MANUAL_EXAMPLE:
		fputs("Ic ", stdout);
		put_escaped(row->name, strlen(row->name));
		break;
	default:
		fputs(row->name, stdout);
		break;
	}
	putchar('\n');
}

static void put_rows(const struct manual *manual, enum manual_kind kind, const char *title)
{
	bool any = false;

	for (size_t i = 0; i < manual->count; i++) {
		const struct manual_row *row = &manual->rows[i];

		if (row->kind != kind)
			continue;
		if (!any)
			printf(".Sh %s\n.Bl -tag -width Ds\n", title);
		any = true;
		put_term(row);
		put_text(row->help);
	}
	if (any)
		puts(".El");
}

static void put_page(const struct manual *manual)
{
	bool any = false;

	put_head(manual->program, manual->section, manual->about);
	put_synopsis(manual);
	puts(".Sh DESCRIPTION");
	for (size_t i = 0; i < manual->count; i++) {
		if (manual->rows[i].kind != MANUAL_TEXT)
			continue;
		if (any)
			puts(".Pp");
		any = true;
		put_text(manual->rows[i].help);
	}
	put_rows(manual, MANUAL_COMMAND, "COMMANDS");
	put_rows(manual, MANUAL_EVENT, "EVENTS");
	put_rows(manual, MANUAL_OPTION, "OPTIONS");
	put_rows(manual, MANUAL_VARIABLE, "ENVIRONMENT");
	put_rows(manual, MANUAL_PLACE, "FILES");
	put_rows(manual, MANUAL_EXIT, "EXIT STATUS");
	put_rows(manual, MANUAL_EXAMPLE, "EXAMPLES");
	put_see(manual->see);
}

/*
 * The page of the configuration
 */

static void put_text_key(const char *key, const char *initial, const char *help)
{
	printf(".It Cm %s Ns = Ns Ar TEXT\n", key);
	put_text(help);
	if (*initial)
		printf("Default: %s.\n", initial);
}

static void put_choice_key(const char *key, const char *initial, const char *choices, const char *help)
{
	printf(".It Cm %s Ns = Ns Ar %s\n", key, choices);
	put_text(help);
	printf("Default: %s.\n", initial);
}

static void put_number_key(
	const char *key, bool bytes, uint64_t initial, uint64_t least, uint64_t most, const char *help)
{
	printf(".It Cm %s Ns = Ns Ar %s\n", key, bytes ? "BYTES" : "NUMBER");
	put_text(help);
	printf("From %" PRIu64 " to %" PRIu64 ", default: %" PRIu64 ".\n", least, most, initial);
}

static void put_keys(void)
{
#define TEXT(key, initial, help)		put_text_key(#key, initial, help);
#define CHOICE(key, initial, choices, help)	put_choice_key(#key, initial, choices, help);
#define NUMBER(key, initial, least, most, help) put_number_key(#key, false, initial, least, most, help);
#define BYTES(key, initial, least, most, help)	put_number_key(#key, true, initial, least, most, help);
#define TUNING(key, initial, least, most)
#include "server/config/options.def"
#undef TEXT
#undef CHOICE
#undef NUMBER
#undef BYTES
#undef TUNING
}

static void put_configuration(void)
{
	put_head("frmps.conf", 5, "configuration of the frmps service");
	puts(".Sh DESCRIPTION");
	put_text("frmps-server reads " CONFIG_DEFAULT_FILE
		 " when it starts, or the file that --config names.");
	put_text("A line is KEY = VALUE. A comment begins with # or ; at the beginning of a line or after a "
		 "blank.");
	put_text("A key that is unknown, or is there twice, is an error, as is a value that is out of range: "
		 "the service does not start, and names the line.");
	put_text("BYTES may end in K, M, G or T, powers of 1024.");
	puts(".Sh KEYS\n.Bl -tag -width Ds");
	put_keys();
	puts(".El\n.Sh SECTIONS");
	put_text(TERMS_HELP);
	puts("In a section may stand:");
	puts(".Bl -bullet -compact");
#define TERM(key) puts(".It\n.Cm " #key);
#include "server/config/terms.def"
#undef TERM
	puts(".El\n.Sh FILES\n.Bl -tag -width Ds\n.It Pa " CONFIG_DEFAULT_FILE "\n.El");
	puts(".Sh EXAMPLES\n.Bl -tag -width Ds\n.It Ic frmps-server \\-\\-help-config > frmps.conf");
	puts("A file with every key, commented out.\n.It Ic frmps-server \\-\\-check-config frmps.conf");
	puts("Whether it is right.");
	puts(".It Li [user alice]\n.It Li memory_limit = 20G");
	puts("Programs of this user have at most 20 GiB of device memory each.\n.El");
	put_see("frmpsctl 1,frmps-server 8");
}

/*
 * Completion
 */

/* " a b" of "x a|b" */
static void put_choices(const char *argument)
{
	for (const char *at = argument; *at; at += strspn(at, " ")) {
		size_t length = strcspn(at, " ");

		if (memchr(at, '|', length))
			for (size_t i = 0; i < length; i++)
				printf("%s%c", i ? "" : " ", at[i] == '|' ? ' ' : at[i]);
		at += length;
	}
}

/* " --a --b" of "x [--a] [--b]" */
static void put_flags(const char *argument)
{
	for (const char *at = strstr(argument, "[--"); at; at = strstr(at + 1, "[--"))
		printf(" %.*s", (int)strcspn(at + 1, "]"), at + 1);
}

static void put_options(const struct manual *manual)
{
	printf("\tlocal words='");
	for (size_t i = 0, n = 0; i < manual->count; i++)
		if (manual->rows[i].kind == MANUAL_OPTION)
			printf("%s--%s", n++ ? " " : "", manual->rows[i].name);
	puts("'");
}

/* The word behind an option that takes an argument. */
static void put_option_arguments(const struct manual *manual)
{
	puts("\tcase $previous in");
	for (size_t i = 0; i < manual->count; i++) {
		const struct manual_row *row = &manual->rows[i];

		if (row->kind != MANUAL_OPTION || !*row->argument || *row->argument == '[')
			continue;
		printf("\t--%s)\n\t\tCOMPREPLY=($(compgen %s", row->name,
			strchr(row->argument, '|') ? "-W '" : "-f");
		put_choices(row->argument);
		printf("%s -- \"$current\"))\n\t\treturn\n\t\t;;\n", strchr(row->argument, '|') ? "'" : "");
	}
	puts("\tesac");
}

/* Sets `first` to the first word that is neither an option nor an option's argument. */
static void put_first(const struct manual *manual)
{
	puts("\tlocal i first=\n\tfor ((i = 1; i < COMP_CWORD; i++)); do\n\t\tcase ${COMP_WORDS[i]} in");
	for (size_t i = 0; i < manual->count; i++) {
		const struct manual_row *row = &manual->rows[i];

		if (row->kind == MANUAL_OPTION && *row->argument && *row->argument != '[')
			printf("\t\t--%s) ((i++)) ;;\n", row->name);
	}
	puts("\t\t-*) ;;\n\t\t*)\n\t\t\tfirst=${COMP_WORDS[i]}\n\t\t\tbreak\n\t\t\t;;\n\t\tesac\n\tdone");
}

/* Completes the words after the first word of commands' names. */
static void put_command(const struct manual *manual, const char *first, size_t length)
{
	printf("\t%.*s) words='--help", (int)length, first);
	for (size_t i = 0; i < manual->count; i++) {
		const struct manual_row *row = &manual->rows[i];

		if (row->kind != MANUAL_COMMAND || strncmp(row->name, first, length) ||
			(row->name[length] && row->name[length] != ' '))
			continue;
		fputs(row->name + length, stdout);
		put_flags(row->argument);
		put_choices(row->argument);
	}
	puts("' ;;");
}

static void put_commands(const struct manual *manual)
{
	printf("\tcase $first in\n\t'') words+='");
	for (size_t i = 0; i < manual->count; i++)
		if (manual->rows[i].kind == MANUAL_COMMAND && !strchr(manual->rows[i].name, ' '))
			printf(" %s", manual->rows[i].name);
	puts("' ;;");
	for (size_t i = 0; i < manual->count; i++)
		if (manual->rows[i].kind == MANUAL_COMMAND && !strchr(manual->rows[i].name, ' '))
			put_command(manual, manual->rows[i].name, strlen(manual->rows[i].name));
	puts("\tesac");
}

/* The name of a function of the shell. */
static void put_function(const char *program)
{
	putchar('_');
	for (; *program; program++)
		putchar(*program == '-' ? '_' : *program);
}

static void put_completion(const struct manual *manual)
{
	bool runs = manual == &manual_run;

	printf("# Completion of %s for bash. Made from the tables of the programs: change those.\n",
		manual->program);
	put_function(manual->program);
	puts("() {\n\tlocal current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}");
	put_options(manual);
	put_first(manual);
	/* All words after the program's name are the program's. */
	if (runs)
		puts("\t[ -z \"$first\" ] || return");
	put_option_arguments(manual);
	if (manual == &manual_ctl)
		put_commands(manual);
	puts("\tCOMPREPLY=($(compgen -W \"$words\" -- \"$current\"))");
	if (runs)
		puts("\tCOMPREPLY+=($(compgen -c -- \"$current\"))");
	puts("}");
	fputs("complete -o bashdefault -o default -F ", stdout);
	put_function(manual->program);
	printf(" %s\n", manual->program);
}

/* The first sentence, in a single line, without a meaning to a shell. */
static void put_sentence(const char *text)
{
	for (; *text && !(text[0] == '.' && (!text[1] || text[1] == ' ')); text++)
		if (!strchr("'[]:\\\n`$\"", *text))
			putchar(*text);
}

/* The commands of a single word, and their help. @begin, @middle, @end: printed around them */
static void put_first_words(
	const struct manual *manual, const char *begin, const char *middle, const char *end)
{
	for (size_t i = 0; i < manual->count; i++) {
		const struct manual_row *row = &manual->rows[i];

		if (row->kind != MANUAL_COMMAND || strchr(row->name, ' '))
			continue;
		printf("%s%s%s", begin, row->name, middle);
		put_sentence(row->help);
		fputs(end, stdout);
	}
}

static void put_zsh(const struct manual *manual)
{
	printf("#compdef %s\n_arguments", manual->program);
	for (size_t i = 0; i < manual->count; i++) {
		const struct manual_row *row = &manual->rows[i];

		if (row->kind != MANUAL_OPTION)
			continue;
		printf(" \\\n\t'--%s%s[", row->name,
			!*row->argument		? ""
			: *row->argument == '[' ? "-="
						: "=");
		put_sentence(row->help);
		fputs(*row->argument ? "]:value:_files'" : "]'", stdout);
	}
	if (manual == &manual_ctl) {
		fputs(" \\\n\t'1:command:((", stdout);
		put_first_words(manual, "", "\\:\"", "\" ");
		fputs("))'", stdout);
	}
	puts(manual == &manual_run ? " \\\n\t'(-)*::program:_normal'" : " \\\n\t'*:argument:_files'");
}

static void put_fish(const struct manual *manual)
{
	for (size_t i = 0; i < manual->count; i++) {
		const struct manual_row *row = &manual->rows[i];

		if (row->kind != MANUAL_OPTION)
			continue;
		printf("complete -c %s -l %s%s -d '", manual->program, row->name,
			*row->argument && *row->argument != '[' ? " -r" : "");
		put_sentence(row->help);
		puts("'");
	}
	if (manual == &manual_ctl)
		put_first_words(
			manual, "complete -c frmpsctl -n __fish_use_subcommand -f -a ", " -d '", "'\n");
	if (manual == &manual_run)
		puts("complete -c frmps-run -x -a '(__fish_complete_subcommand)'");
}

int main(int count, char **arguments)
{
	const char *what = count == 3 ? arguments[1] : "", *name = count == 3 ? arguments[2] : "";

	if (!strcmp(what, "page") && !strcmp(name, "frmps.conf")) {
		put_configuration();
		return 0;
	}
	for (size_t i = 0; i < sizeof(manuals) / sizeof(manuals[0]); i++) {
		if (strcmp(manuals[i]->program, name))
			continue;
		if (!strcmp(what, "page"))
			put_page(manuals[i]);
		else if (!strcmp(what, "completion"))
			put_completion(manuals[i]);
		else if (!strcmp(what, "zsh"))
			put_zsh(manuals[i]);
		else if (!strcmp(what, "fish"))
			put_fish(manuals[i]);
		else
			break;
		return fflush(stdout) || ferror(stdout);
	}
	fprintf(stderr, "usage: generate page|completion|zsh|fish NAME\n");
	return 64;
}
