// Numbers in the environment: for experiments and odd machines. Any thread, before others change
// the environment.

#ifndef FRMPS_SERVER_ENVIRONMENT_H
#define FRMPS_SERVER_ENVIRONMENT_H

#include <stdint.h>

/**
 * Reads a variable.
 * Return: the number; `otherwise` if the variable is missing or, with a warning in the log, no
 * number from least to most
 */
uint64_t environment_number(const char *name, uint64_t otherwise, uint64_t least, uint64_t most);

#endif
