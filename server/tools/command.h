// Dispatch of a word on the command line, or of a line of standard input, to a row of the program's
// table (manual.h) and its function; and requests of such functions to the service. All functions:
// a single thread.

#ifndef FRMPS_SERVER_TOOLS_COMMAND_H
#define FRMPS_SERVER_TOOLS_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct manual;
struct wire_names;

/** Context of a command. */
struct call {
	const char *program; /* which messages begin with */
	const char *name;    /* of the command, as in its row */
	const char *path;    /* of the socket */
	bool json, follow, now, end;
	const char *since;  /* --since; NULL: none */
	const char *device; /* the only one that the command is for; NULL: whichever it concerns */
	unsigned devices;   /* that the command goes to in turn; 0: to one */
	unsigned position;  /* of this one among them */
	int count;
	char **arguments; /* as many as in the row */
};

struct command {
	const char *name; /* of its row */
	/* Return: exit code */
	int (*run)(const struct call *call);
};

/** A program's commands. */
struct commands {
	const struct manual *manual;
	const struct command *rows;
	size_t count;
};

/** Runs the command that words begin with. @call: its program, path and options. A command that
 * takes everything after its name still leaves --json to this function. @words: changed. Return:
 * exit code */
int command_run(const struct commands *commands, struct call *call, int count, char **words);

/** Prints the help of the command that words begin with, or of the program. Return: exit code */
int command_help(const struct commands *commands, int count, char **words);

/** True if the words begin with a command that takes everything after its name, options too. */
bool command_takes_all(const struct commands *commands, int count, char **words);

/* Words of a line that are read, including the program's name. */
#define COMMAND_WORDS_MAX 16

/**
 * Reads lines to the end or to a line `quit`, and runs each line that is not empty. Words are
 * separated by blanks.
 * @run: gets the program's name and the words. Return: exit code
 * Return: exit code of the latest line that failed, else 0; -1 if no line had a word
 */
int command_read(
	FILE *in, const char *program, int (*run)(void *context, int count, char **arguments), void *context);

/** Prints a document, and frees it. Return: exit code */
int command_print(json_t *root);

/** Reports the reason of a failed request (ask.h). Return: exit code */
int call_fail(const struct call *call, int error, const char *text);

/**
 * Asks the service and parses the answer.
 * @seconds: time limit
 * @ret_root: the document, the caller's
 * @ret_text: on failure, a sentence
 * Return: as ask_with(); an answer that cannot be read is a refusal
 */
int call_try(const struct call *call, const char *command, const struct wire_names *arguments,
	unsigned seconds, json_t **ret_root, char *ret_text, size_t size);

/**
 * The same, with an error line on failure.
 * @ret_code: exit code, where there is no answer
 * Return: the document, the caller's, or NULL
 */
json_t *call_ask(const struct call *call, const char *command, const struct wire_names *arguments,
	unsigned seconds, int *ret_code);

#endif
