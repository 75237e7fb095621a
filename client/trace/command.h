// Commands that are being timed: from before their submission until their times are there, or known
// to be lost. Each has two events of the session, so their number is bounded. They are used again
// and never freed. Any thread.

#ifndef FRMPS_CLIENT_TRACE_COMMAND_H
#define FRMPS_CLIENT_TRACE_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "client/submit/submit.h"
#include "client/trace/line.h"

struct client_stream;

struct command {
	struct submit_timing timing; /* first: trace.c hands it out for the whole */
	STAILQ_ENTRY(command) next;
	const struct client_stream *stream;
	uint64_t stream_id;
	uint64_t id;
	uint64_t thread;     /* track of the thread that has submitted it */
	uint64_t submitted;  /* monotonic ns, before the submission */
	uint64_t lost_since; /* ns: no executor will write its times; 0: one may */
	const char *kind;
	char details[160]; /* more members of args, as text */
	char name[LINE_NAME_BYTES + 1];
};

STAILQ_HEAD(commands, command);

/** @take_event: as trace_start() has it */
void command_start(uint32_t (*take_event)(void));

/**
 * Takes a command for a submission to the stream.
 * @waits: if there is none, wait for a turn (turn.h) first
 * Return: NULL: all are in use, which counts as a command without times
 */
struct command *command_take(const struct client_stream *stream, bool waits);

/** The command is not used any more. */
void command_give(struct command *command);

/** The command was submitted: the trace's thread gets it. */
void command_pass(struct command *command);

/** Moves the commands of command_pass() to the end of a list. The trace's thread. Return: whether
 * there were any */
bool command_collect(struct commands *to);
/** True while there are such commands. */
bool command_has_passed(void);

/** Counts one more command without times. */
void command_count_untimed(void);
/** Commands without times since the last call. */
uint64_t command_untimed(void);

#endif
