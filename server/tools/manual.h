// What a program tells its user of itself. Each program has a table, NAME.def: its options are
// parsed by it, --help is printed from it, and the build makes manual page and completion of it
// (server/man/generate.c). A row is one of
//
//   TEXT(paragraph)						what the program is for
//   COMMAND(name, arguments, least, most, function, help)	name: one or two words; least, most: number of arguments
//   VERB(name, arguments, least, most, function, help)		a command of which options look as it wants: all behind it is its own
//   EVENT(kind, bound, help)					of session/events.def
//   OPTION(letter, name, argument, help)			letter: what manual_option() returns; argument: "" for none
//   INTERNAL(letter, name, argument)				an option that users are not told of
//   VARIABLE(name, values, help)				of the environment
//   PLACE(path, help)						a file
//   EXAMPLE(command, help)
//   EXIT(code, help)
//
// An argument or a value "a|b" is a choice, "[X]" may be left out. All functions: one thread.

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
	int section;	      /* of the manual; 0: it has no page there */
	const char *synopsis; /* behind the program's name; lines are alternatives */
	const char *about;    /* in one line */
	const char *see;      /* other pages: "name section", separated by commas */
	const char *
		letters; /* options of one letter, as getopt() wants them; names then need one dash. NULL: "h" */
	const struct manual_row *rows;
	size_t count;
};

extern const struct manual manual_server, manual_run, manual_ctl, manual_exporter, manual_mps;

/**
 * The next option, like getopt_long(): optarg and optind are set. -h is --help. Says itself what is
 * wrong with one.
 * @stops: options end at the first other argument
 * Return: the option's letter, -1 behind the last one, '?' after a wrong one
 */
int manual_option(const struct manual *manual, int count, char **arguments, int stops);

/** Writes out what was printed. Return: exit code: whether some of it could not be written */
int manual_flush(FILE *out);

/** Prints --help. Return: of manual_flush() */
int manual_help(const struct manual *manual, FILE *out);

/** Prints the help of one command. Return: of manual_flush() */
int manual_help_command(const struct manual *manual, const struct manual_row *command, FILE *out);

/**
 * The command that arguments begin with.
 * @ret_words: words of its name
 * Return: NULL if there is none
 */
const struct manual_row *manual_command(
	const struct manual *manual, int count, char *const *arguments, int *ret_words);

/** The command whose name is most like a word, for a hint. Return: NULL if none is like it. */
const char *manual_nearest(const struct manual *manual, const char *word);

/** Says in one line what is wrong with the usage (NULL: it has been said), and where help is.
 * Return: EX_USAGE */
int manual_wrong(const struct manual *manual, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
