// The description of a program for its user. Each program has a table, NAME.def: the parser of
// options, --help, and the build's manual page and completion (server/man/generate.c) all use this
// table. The rows:
//
//   TEXT(paragraph)						purpose of the program
//   COMMAND(name, arguments, least, most, function, help)	name: one or two words; least, most: number of arguments
//   VERB(name, arguments, least, most, function, help)		a command with its own syntax of options: all words after the name belong to the verb
//   EVENT(kind, bound, help)					of session/events.def
//   OPTION(letter, name, argument, help)			letter: returned by manual_option(); argument: "" for none
//   INTERNAL(letter, name, argument)				an option without documentation
//   VARIABLE(name, values, help)				of the environment
//   PLACE(path, help)						a file
//   EXAMPLE(command, help)
//   EXIT(code, help)
//
// An argument or a value "a|b" is a choice, "[X]" may be omitted. All functions: a single thread.

#ifndef FRMPS_SERVER_TOOLS_MANUAL_H
#define FRMPS_SERVER_TOOLS_MANUAL_H

#include <stddef.h>
#include <stdio.h>

enum manual_kind {
	MANUAL_TEXT,
	MANUAL_COMMAND,
	MANUAL_EVENT,
	MANUAL_OPTION,
	MANUAL_INTERNAL,
	MANUAL_VARIABLE,
	MANUAL_PLACE,
	MANUAL_EXAMPLE,
	MANUAL_EXIT,
};

/* `number` of a VERB. */
#define MANUAL_TAKES_ALL 1

struct manual_row {
	enum manual_kind kind;
	int number;	  /* OPTION, INTERNAL: the letter; EXIT: the code; COMMAND: 0 or MANUAL_TAKES_ALL */
	int least, most;  /* COMMAND */
	const char *name; /* TEXT: NULL */
	const char *argument, *help;
};

struct manual {
	const char *program;
	int section;	      /* of the manual; 0: no page */
	const char *synopsis; /* behind the program's name; lines are alternatives */
	const char *about;    /* a single line */
	const char *see;      /* other pages: "name section", separated by commas */
	const char *letters;  /* options of a single letter, in getopt()'s syntax; names then need one dash.
			  * NULL: "h" */
	const struct manual_row *rows;
	size_t count;
};

extern const struct manual manual_server, manual_run, manual_ctl, manual_exporter, manual_mps;

/**
 * The next option, like getopt_long(): optarg and optind are set. -h is --help. Reports errors
 * itself.
 * @stops: options end at the first other argument
 * Return: the option's letter, -1 after the last option, '?' for an error
 */
int manual_option(const struct manual *manual, int count, char **arguments, int stops);

/** Flushes the output. Return: exit code of a failed write, else 0 */
int manual_flush(FILE *out);

/** Prints --help. Return: of manual_flush() */
int manual_help(const struct manual *manual, FILE *out);

/** Prints the help of a command. Return: of manual_flush() */
int manual_help_command(const struct manual *manual, const struct manual_row *command, FILE *out);

/**
 * The command that arguments begin with.
 * @ret_words: words of the command's name
 * Return: NULL if there is none
 */
const struct manual_row *manual_command(
	const struct manual *manual, int count, char *const *arguments, int *ret_words);

/** The command with the most similar name, for a hint. Return: NULL if none is similar. */
const char *manual_nearest(const struct manual *manual, const char *word);

/**
 * Prints an error line about the usage (NULL: already printed), and where help is.
 * Return: EX_USAGE
 */
int manual_wrong(const struct manual *manual, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
