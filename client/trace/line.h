// One event of a trace as text: a line of JSON. A line is made of parts of bounded length, and
// LINE_BYTES is more than their sum; a part that does not fit is left out.

#ifndef FRMPS_CLIENT_TRACE_LINE_H
#define FRMPS_CLIENT_TRACE_LINE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a name that are shown, before control characters become six bytes each. */
#define LINE_NAME_BYTES 1000u
#define LINE_BYTES	8192u

struct trace_line {
	char *text;
	size_t used, room; /* bytes */
};

/** Appends text as it is. */
void line_add(struct trace_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Appends a string of anybody's as one of JSON, with its quotes. Bytes that are no UTF-8 become
 * '?', and a long string is cut. NULL is the empty string. */
void line_add_string(struct trace_line *line, const char *string);

/** Appends a length or moment in nanoseconds as the format wants it: microseconds. */
void line_add_time(struct trace_line *line, uint64_t ns);

#endif
