// The configuration file of stock MPS' protocol 3 (nvidia-cuda-mps-control -a FILE): a part of
// TOML. Its tables become verbs of that protocol (mps3.def), in the file's order, which are run
// once the service is ready. So a verb refuses the same words in a file. Single thread.

#ifndef FRMPS_SERVER_TOOLS_MPS_CONFIG_H
#define FRMPS_SERVER_TOOLS_MPS_CONFIG_H

#include <stddef.h>

struct mps_config;

/**
 * Reads a file.
 * @program: at the beginning of error lines
 * Return: the caller's, for mps_config_free(); NULL after an error line with the file's name and
 * the number of its line
 */
struct mps_config *mps_config_read(const char *path, const char *program);
struct mps_config *mps_config_free(struct mps_config *config);

/**
 * Runs the verbs until one fails.
 * @run: gets a word for the program's name and the verb's words, and may change them
 * Return: of the last run(); 0 if there is nothing to do
 */
int mps_config_run(
	struct mps_config *config, int (*run)(void *context, int count, char **arguments), void *context);

#endif
