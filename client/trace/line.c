// See line.h. No state.

#include "client/trace/line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void line_add(struct trace_line *line, const char *format, ...)
{
	size_t room = line->room - line->used;
	va_list arguments;
	int length;

	if (!room)
		return;
	va_start(arguments, format);
	length = vsnprintf(line->text + line->used, room, format, arguments);
	va_end(arguments);
	if (length > 0 && (size_t)length < room)
		line->used += (size_t)length;
}

/* Bytes of the UTF-8 character that begins here; 0: none does. */
static size_t character(const unsigned char *at)
{
	size_t bytes = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;

	if (at[0] > 0xf4 || (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
		(at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
		return 0;
	for (size_t i = 1; i < bytes; ++i)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	return bytes;
}

static void add_character(struct trace_line *line, const unsigned char *at, size_t bytes)
{
	if (bytes == 0)
		line_add(line, "?");
	else if (*at == '"' || *at == '\\')
		line_add(line, "\\%c", *at);
	else if (*at < 0x20)
		line_add(line, "\\u%04x", *at);
	else
		line_add(line, "%.*s", (int)bytes, (const char *)at);
}

void line_add_string(struct trace_line *line, const char *string)
{
	const unsigned char *at = (const unsigned char *)(string ? string : "");
	const unsigned char *end = at + strnlen((const char *)at, LINE_NAME_BYTES);

	line_add(line, "\"");
	while (at < end) {
		size_t bytes = character(at);

		add_character(line, at, bytes);
		at += bytes ? bytes : 1;
	}
	line_add(line, "\"");
}

void line_add_time(struct trace_line *line, uint64_t ns)
{
	line_add(line, "%llu.%03u", (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}
