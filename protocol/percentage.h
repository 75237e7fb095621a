// Percentages as stock MPS writes them, the same for library and service.

#ifndef FRMPS_PROTOCOL_PERCENTAGE_H
#define FRMPS_PROTOCOL_PERCENTAGE_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Reads a number from 1 to 100. Fractions of a percent are dropped: 12.5 means 12, never more.
 * Return: false if the text is no such number
 */
bool percentage_parse(const char *text, uint32_t *ret_percent);

#endif
