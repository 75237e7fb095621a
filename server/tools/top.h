// frmpsctl top: the present work of programs, from two status documents (control/status.c) a moment
// apart.

#ifndef FRMPS_SERVER_TOOLS_TOP_H
#define FRMPS_SERVER_TOOLS_TOP_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/**
 * Prints a summary and a line for each session, the session with the most commands a second first.
 * @before: NULL: none yet, and no rates
 * @ns: between the documents
 * @rows: lines that fit, summary and head included; 0: all
 * @end: of each line
 */
void top_print(
	const json_t *before, const json_t *now, uint64_t ns, unsigned rows, const char *end, FILE *out);

/**
 * The same figures as a document: device, memory_bytes, host_bytes, commands_per_second, faults and
 * sessions, a list of the service's entries, each with its commands_per_second.
 * Return: the caller's; NULL when out of memory
 */
json_t *top_json(const json_t *before, const json_t *now, uint64_t ns);

#endif
