// Numbers of bytes for people, in the configuration's format. Any thread.

#ifndef FRMPS_SERVER_BYTES_H
#define FRMPS_SERVER_BYTES_H

#include <stdint.h>

#define BYTES_TEXT 24u

/**
 * Writes 192G, 4090M, 12.5G or 100: the largest unit in which the number is whole; above four
 * digits, a larger unit with a decimal.
 * Return: @text
 */
const char *bytes_text(char text[BYTES_TEXT], uint64_t bytes);

/** The text, valid to the end of the block around the macro. */
#define BYTES_OF(bytes) bytes_text((char[BYTES_TEXT]){0}, bytes)

#endif
