// See render.h. This file takes a conversion apart like the kernel's side
// (server/backend/cuda/text.cu), so that both count the same arguments. Then it passes a new
// conversion to the C library, with a type that fits the argument in the record.

#include "client/text/render.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Longest field, and most digits. */
#define FIELD_MAX 65536

/* A conversion of a format. */
struct conversion {
	const char *begin, *end; /* with the '%', behind the letter */
	char flags[8];		 /* each once */
	int width, precision;	 /* -1: none */
	bool wide;		 /* an integer of eight bytes */
	unsigned int halves;	 /* how many h */
	char letter;		 /* NUL: the format ends within the conversion */
};

/* The unread rest of a record. */
struct reader {
	const uint64_t *at;
	size_t left;
};

static bool take_word(struct reader *reader, uint64_t *ret_word)
{
	if (!reader->left)
		return false;
	*ret_word = *reader->at++;
	reader->left--;
	return true;
}

/* A text of whole words; NULL if the record ends before the text. */
static const char *take_text(struct reader *reader)
{
	const char *text = (const char *)reader->at;
	size_t room = reader->left * sizeof(*reader->at), length = strnlen(text, room);
	size_t words = length / sizeof(*reader->at) + 1;

	if (length == room)
		return NULL;
	reader->at += words;
	reader->left -= words;
	return text;
}

/* ---- conversions ---- */

static int bounded(int value)
{
	return value > FIELD_MAX ? FIELD_MAX : value;
}

static void add_flag(struct conversion *c, char flag)
{
	size_t length = strlen(c->flags);

	if (!strchr(c->flags, flag) && length + 1 < sizeof(c->flags))
		c->flags[length] = flag;
}

/* A width or a precision that is an argument. A negative width is the flag and a width, a negative
 * precision none. */
static void set_word(struct conversion *c, bool precise, int value)
{
	if (precise) {
		c->precision = value < 0 ? -1 : bounded(value);
		return;
	}
	if (value < 0)
		add_flag(c, '-');
	c->width = value < -FIELD_MAX ? FIELD_MAX : bounded(abs(value));
}

/* Takes a character between '%' and the letter. Return: false if it is the letter. */
static bool take_modifier(struct conversion *c, bool *precise, char at)
{
	int *field = *precise ? &c->precision : &c->width;

	if (at >= '0' && at <= '9' && (at != '0' || *precise || *field >= 0))
		*field = bounded((*field < 0 ? 0 : *field) * 10 + (at - '0'));
	else if (at == '.')
		*precise = true, c->precision = 0;
	else if (at && strchr("+-0 #", at))
		add_flag(c, at);
	else if (at == 'l')
		c->wide = true;
	else if (at == 'h')
		c->halves++;
	else
		return false;
	return true;
}

/* Takes a conversion apart, and the arguments for its asterisks. Return: false if the record ends
 * before. */
static bool parse(const char *at, struct reader *reader, struct conversion *ret)
{
	struct conversion c = {.begin = at, .width = -1, .precision = -1};
	bool precise = false;
	uint64_t word;

	for (at++;; at++) {
		if (*at == '*') {
			if (!take_word(reader, &word))
				return false;
			set_word(&c, precise, (int)(uint32_t)word);
		} else if (!take_modifier(&c, &precise, *at)) {
			break;
		}
	}
	c.letter = *at;
	c.end = at + (*at != '\0');
	*ret = c;
	return true;
}

/* The conversion for the C library, with the length modifier of the passed argument. */
static void compose(const struct conversion *c, const char *length, char *spec, size_t size)
{
	char width[16] = "", precision[16] = "";

	if (c->width >= 0)
		snprintf(width, sizeof(width), "%d", c->width);
	if (c->precision >= 0)
		snprintf(precision, sizeof(precision), ".%d", c->precision);
	snprintf(spec, size, "%%%s%s%s%s%c", c->flags, width, precision, length, c->letter);
}

static void put_integer(FILE *out, const struct conversion *c, uint64_t word)
{
	const char *length = c->wide ? "ll" : c->halves > 1 ? "hh" : c->halves ? "h" : "";
	char spec[64];

	compose(c, c->letter == 'c' ? "" : length, spec, sizeof(spec));
	if (c->wide && c->letter != 'c')
		fprintf(out, spec, (long long)word);
	else
		fprintf(out, spec, (int)(uint32_t)word);
}

static void put_double(FILE *out, const struct conversion *c, uint64_t word)
{
	char spec[64];
	double value;

	memcpy(&value, &word, sizeof(value));
	compose(c, "", spec, sizeof(spec));
	fprintf(out, spec, value);
}

static void put_pointer(FILE *out, const struct conversion *c, uint64_t word)
{
	char spec[64];

	compose(c, "", spec, sizeof(spec));
	fprintf(out, spec, (void *)(uintptr_t)word);
}

static void put_text(FILE *out, const struct conversion *c, const char *text)
{
	char spec[64];

	compose(c, "", spec, sizeof(spec));
	fprintf(out, spec, text);
}

/* Return: false if the record ends before. */
static bool put_argument(FILE *out, const struct conversion *c, struct reader *reader)
{
	const char *text = c->letter == 's' ? take_text(reader) : NULL;
	uint64_t word = 0;

	if (c->letter == 's' ? !text : !take_word(reader, &word))
		return false;
	if (text)
		put_text(out, c, text);
	else if (strchr("diouxXc", c->letter))
		put_integer(out, c, word);
	else if (c->letter == 'p')
		put_pointer(out, c, word);
	else if (c->letter != 'n')
		put_double(out, c, word);
	return true;
}

/* Return: the text behind the conversion; NULL if the record ends before. */
static const char *convert(FILE *out, const char *at, struct reader *reader)
{
	struct conversion c;

	if (!parse(at, reader, &c))
		return NULL;
	if (c.letter && strchr("diouxXcaAeEfFgGpsn", c.letter))
		return put_argument(out, &c, reader) ? c.end : NULL;
	if (c.letter == '%')
		fputc('%', out);
	else
		fwrite(c.begin, 1, (size_t)(c.end - c.begin), out);
	return c.end;
}

/* ---- records ---- */

void render_printf(FILE *out, const uint64_t *words, size_t count)
{
	struct reader reader = {words, count};
	const char *at = take_text(&reader);

	while (at && *at) {
		const char *next = strchrnul(at, '%');

		fwrite(at, 1, (size_t)(next - at), out);
		at = *next ? convert(out, next, &reader) : next;
	}
}

void render_plain(FILE *out, const uint64_t *words, size_t count)
{
	struct reader reader = {words, count};
	const char *text = take_text(&reader);

	if (text)
		fputs(text, out);
}

void render_assert(FILE *out, const uint64_t *words, size_t count)
{
	struct reader reader = {words, count};
	const char *condition, *file, *function;
	uint64_t at[7];

	for (unsigned int i = 0; i < 7; ++i)
		if (!take_word(&reader, &at[i]))
			return;
	condition = take_text(&reader);
	file = condition ? take_text(&reader) : NULL;
	function = file ? take_text(&reader) : NULL;
	if (!function)
		return;
	fprintf(out, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file,
		(unsigned int)at[0], function, (unsigned int)at[1], (unsigned int)at[2], (unsigned int)at[3],
		(unsigned int)at[4], (unsigned int)at[5], (unsigned int)at[6], condition);
}
