// What a word on the command line, or a line of standard input, has an operator's program do: a row
// of the program's table (manual.h) and a function for it; and how such a function asks the
// service. All functions: one thread.

#ifndef FRMPS_SERVER_TOOLS_COMMAND_H
#define FRMPS_SERVER_TOOLS_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct manual;
struct wire_names;

/** What a command works with. */
struct call {
	const char *program; /* which messages begin with */
	const char *name;    /* of the command, as in its row */
	const char *path;    /* of the socket */
	bool json, follow, now;
	int count;
	char **arguments; /* as many as its row says */
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

/** Runs the command that words begin with. @call: program, path and options of it. A command
 * that takes everything behind its name still leaves --json to us. @words: changed. Return: exit
 * code */
int command_run(const struct commands *commands, struct call *call, int count, char **words);

/** Prints the help of the command that words begin with, or of the program. Return: exit code */
int command_help(const struct commands *commands, int count, char **words);

/** Whether words begin with a command that takes everything behind its name, what looks like an
 * option too. */
bool command_takes_all(const struct commands *commands, int count, char **words);

/* Words in a line that are read, the program's name among them. */
#define COMMAND_WORDS_MAX 16

/**
 * Reads lines until their end or a line `quit`, and runs each that is not empty. Words are
 * separated by blanks.
 * @run: gets the program's name and the words. Return: exit code
 * Return: exit code of the latest line that failed, else 0; -1 if no line had a word
 */
int command_read(
	FILE *in, const char *program, int (*run)(void *context, int count, char **arguments), void *context);

/** Prints a document. Return: exit code */
int command_print(const json_t *root);

/** Says why a question was not answered with success (ask.h). Return: exit code */
int call_fail(const struct call *call, int error, const char *text);

/**
 * Asks the service and takes the answer apart.
 * @seconds: how long it may take
 * @ret_root: the document, the caller's
 * @ret_text: on failure, one sentence
 * Return: as ask_with(); an answer that cannot be read is a refusal
 */
int call_try(const struct call *call, const char *command, const struct wire_names *arguments,
	unsigned seconds, json_t **ret_root, char *ret_text, size_t size);

/**
 * The same, and says what is wrong.
 * @ret_code: exit code, where there is no answer
 * Return: the document, the caller's, or NULL
 */
json_t *call_ask(const struct call *call, const char *command, const struct wire_names *arguments,
	unsigned seconds, int *ret_code);

#endif
