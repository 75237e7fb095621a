// Documents for operators, as text. Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_DOCUMENT_H
#define FRMPS_SERVER_CONTROL_DOCUMENT_H

#include <jansson.h>

/** A document as text. @root: taken; NULL: without memory. Return: the caller's, NULL when out of
 * memory */
static inline char *document_text(json_t *root)
{
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

	json_decref(root);
	return text;
}

#endif
