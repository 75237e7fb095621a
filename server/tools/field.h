// Fields of the service's answers, for the operator's tools. Any thread.

#ifndef FRMPS_SERVER_TOOLS_FIELD_H
#define FRMPS_SERVER_TOOLS_FIELD_H

#include <jansson.h>

#include "server/bytes.h"

/** Return: the text, the object's; @missing if there is none */
static inline const char *field_text(const json_t *object, const char *key, const char *missing)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : missing;
}

/** Return: the number; 0 if there is none */
static inline long long field_number(const json_t *object, const char *key)
{
	return (long long)json_integer_value(json_object_get(object, key));
}

/** Return: @text, a number of bytes */
static inline const char *field_bytes(char text[BYTES_TEXT], const json_t *object, const char *key)
{
	return bytes_text(text, (uint64_t)field_number(object, key));
}

/** Return: @text, a limit in bytes; - if there is none */
static inline const char *field_limit(char text[BYTES_TEXT], const json_t *object, const char *key)
{
	return field_number(object, key) ? field_bytes(text, object, key) : "-";
}

/** The texts, valid to the end of the block around the macro. */
#define FIELD_BYTES(object, key) field_bytes((char[BYTES_TEXT]){0}, object, key)
#define FIELD_LIMIT(object, key) field_limit((char[BYTES_TEXT]){0}, object, key)

#endif
