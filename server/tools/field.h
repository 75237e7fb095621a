// Fields of the service's answers, for the operator's tools. Any thread.

#ifndef FRMPS_SERVER_TOOLS_FIELD_H
#define FRMPS_SERVER_TOOLS_FIELD_H

#include <jansson.h>

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

#endif
