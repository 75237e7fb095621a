// The service's configuration: an ini file, keys and their rules in options.def. Keys stand before
// the first section and hold for everybody; some may also stand in sections, which hold for some
// programs (terms.h). Read at the start, constant afterwards but for these terms; children get
// their settings by their command line.

#ifndef FRMPS_SERVER_CONFIG_CONFIG_H
#define FRMPS_SERVER_CONFIG_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "server/config/terms.h"
#include "shm/layout.h"

#define CONFIG_TEXT_MAX 108
/* Room for the errors of a file. */
#define CONFIG_WRONG_MAX    2048
#define CONFIG_DEFAULT_FILE "/etc/frmps/frmps.conf"

struct config {
#define TEXT(key, initial, help)		char key[CONFIG_TEXT_MAX];
#define CHOICE(key, initial, choices, help)	uint64_t key;
#define NUMBER(key, initial, least, most, help) uint64_t key;
#define BYTES(key, initial, least, most, help)	uint64_t key;
#define TUNING(key, initial, least, most)	uint64_t key;
#include "server/config/options.def"
#undef TEXT
#undef CHOICE
#undef NUMBER
#undef BYTES
#undef TUNING
	/* Where this came from, to be read again. The texts are the caller's of config_load(). */
	const char *file; /* NULL: none */
	const struct config_setting *settings;
	unsigned setting_count;
	struct rules rules; /* `general` is not in use: see config_rules() */
};

/* A key that the command line sets. */
struct config_setting {
	const char *key, *value;
};

/* The key backend, if it is not the path of one that is loaded. */
#define CONFIG_BACKEND_CUDA "cuda"

/* Positions in the lists of options.def. */
enum config_guard { CONFIG_GUARD_ERROR, CONFIG_GUARD_WARN, CONFIG_GUARD_OFF };
enum config_isolation { CONFIG_ISOLATION_USER, CONFIG_ISOLATION_CLIENT };
enum config_memory_policy {
	CONFIG_MEMORY_POLICY_REFUSE,
	CONFIG_MEMORY_POLICY_EVICT,
	CONFIG_MEMORY_POLICY_SWAP
};
/* Programs of the later class yield to those of the earlier. */
enum config_class { CONFIG_CLASS_ONLINE, CONFIG_CLASS_OFFLINE };
enum config_recovery { CONFIG_RECOVERY_FAIL, CONFIG_RECOVERY_REPLAY };

/* Outcome: the text of config_read() and config_set() has the error. */
#define CONFIG_E_INVALID 1
#define CONFIG_E_MISSING 2 /* config_read(): there is no such file */
#define CONFIG_E_SETTING 3 /* config_load(): the command line has an error */

/** All defaults. */
void config_init(struct config *config);

/**
 * Reads a whole number: digits alone.
 * @suffix: allows K, M, G or T, small or large, at the end, for a power of 1024
 * @ret_number: untouched on failure
 * Return: true for a number below 2^64
 */
bool config_parse_number(const char *text, bool suffix, uint64_t *ret_number);

/** True if kernels run on the GPU. */
bool config_uses_gpu(const struct config *config);

/**
 * Sets one key from text.
 * @ret_text: for CONFIG_E_INVALID, the error, "key: …"
 * Return: 0 or CONFIG_E_INVALID
 */
int config_set(struct config *config, const char *key, const char *value, char *ret_text, size_t text_size);

/**
 * Reads a file over the present values.
 * @ret_text: on an outcome other than 0 the errors, for the operator: for each wrong line
 * "file:line: key: …"; the last line may give the number of errors without room
 * Return: 0, CONFIG_E_INVALID or CONFIG_E_MISSING
 */
int config_read(struct config *config, const char *path, char *ret_text, size_t text_size);

/**
 * Reads a file over the defaults, and applies the settings of the command line.
 * @file: NULL: CONFIG_DEFAULT_FILE, if present
 * @settings: of the command line; the caller's for as long as the configuration is in use
 * @ret_text: as of config_read()
 * Return: 0, CONFIG_E_SETTING, or an outcome of config_read()
 */
int config_load(struct config *config, const char *file, const struct config_setting *settings,
	unsigned count, char *ret_text, size_t text_size);

/** The terms on which everybody is served, and the sections. */
void config_rules(const struct config *config, struct rules *ret_rules);

/** Lists keys that differ and are no terms, "a, b"; cut off without room, empty if there are
 * none. */
void config_differences(const struct config *config, const struct config *other, char *ret_text, size_t size);

/** Fills in an empty socket path. Return: 0 or CONFIG_E_INVALID (no XDG_RUNTIME_DIR). */
int config_default_socket(struct config *config, char *ret_text, size_t text_size);

/** Prints every key with its default and meaning, as a commented configuration file. */
void config_help(FILE *out);

#endif
