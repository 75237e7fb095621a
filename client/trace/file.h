// The file of a trace: Chrome's trace event format, an array of events. Any thread writes lines
// into memory, of which there is a bounded amount; one thread writes that into the file. The array
// is closed behind each write, and the next one begins over its end: so the file can be read at any
// moment, also when the program is killed.

#ifndef FRMPS_CLIENT_TRACE_FILE_H
#define FRMPS_CLIENT_TRACE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/trace/line.h"

/**
 * Makes the file: `path`, or, if there is one, `path`.PID. Nobody puts lines yet.
 * Return: false: the file cannot be made, which is logged.
 */
bool trace_file_open(const char *path);

/**
 * Begins one more event. Other threads wait until trace_file_end(), which adds the event to the
 * text. If there is no room, the line has none either, and the event is lost. Any thread.
 */
void trace_file_begin(struct trace_line *ret_line);
void trace_file_end(const struct trace_line *line);

/** True if much of the room is used, so that a write is due. Any thread. */
bool trace_file_is_crowded(void);

/** True if there is something to write. Any thread. */
bool trace_file_has_text(void);

/** Events that were lost since the last call. The writing thread. */
uint64_t trace_file_lost(void);

/** Writes the text to the file. The writing thread. Return: false: a write failed, now or before.
 * The first failure is logged. */
bool trace_file_write(void);

/** Nothing more is written: at the end, or in a forked child, where the file is the parent's. */
void trace_file_close(void);

#endif
