// Common parts of the verbs of protocol 3 (mps3.c, mps3_device.c): their words, tables, and the
// names of servers. A verb that lists makes rows of texts first (struct table), which are printed
// as table or csv; `get` prints one field of a row. Single thread.

#ifndef FRMPS_SERVER_TOOLS_MPS3_INSIDE_H
#define FRMPS_SERVER_TOOLS_MPS3_INSIDE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/tools/command.h"

/* Words KEY=VALUE. */
#define MPS3_KEYS(KEY)                                                                                       \
	KEY(UID, "uid")                                                                                      \
	KEY(ALLOWED_DEVICES, "allowed-devices")                                                              \
	KEY(LOCALITY_DOMAINS, "locality-domains")                                                            \
	KEY(MEMORY, "pinned-memory-limit")                                                                   \
	KEY(PERCENTAGE, "active-thread-percentage")                                                          \
	KEY(PRIORITY, "client-priority")                                                                     \
	KEY(SERVER, "server")                                                                                \
	KEY(DEVICE, "device")                                                                                \
	KEY(CHUNKS, "chunks")                                                                                \
	KEY(REMAINDER, "include-remainder")                                                                  \
	KEY(FORMAT, "format")                                                                                \
	KEY(FORCE, "force")                                                                                  \
	KEY(ALL, "all")

enum key {
#define KEY(name, text) KEY_##name,
	MPS3_KEYS(KEY)
#undef KEY
		KEY_COUNT
};

#define KEY_BIT(name)  (1u << KEY_##name)
#define MPS3_NAMES_MAX 3

struct words {
	const char *names[MPS3_NAMES_MAX];
	unsigned count;
	const char *values[KEY_COUNT]; /* NULL: not given; of a flag: empty */
};

/**
 * Parses the words after a verb. @keys: bits of the allowed keys; @least, @most: names.
 * Return: 0, or EX_USAGE after an error line
 */
int mps3_take(const struct call *call, unsigned keys, unsigned least, unsigned most, struct words *ret_words);

/** Refuses a feature of stock MPS that this service lacks, if requested. @value: NULL, false or
 * true; @what: its name. Return: exit code; 0: not requested */
int mps3_refuse_true(const struct call *call, const char *value, const char *what);

struct table {
	const char *const *columns;
	size_t width;
	json_t *rows; /* of as many texts */
};

#define COLUMNS(list) list, sizeof(list) / sizeof((list)[0])

/** Prints a table and frees its rows. @format: NULL for a table with its header. Return: exit
 * code */
int mps3_print(const struct call *call, struct table *table, const char *format);
/** Prints a field of the first row and frees the rows. Return: exit code */
int mps3_print_field(const struct call *call, struct table *table, const char *field);

/* Room for a server's name. */
#define MPS3_NAME 128

void mps3_name_user(long long uid, char name[MPS3_NAME]);
void mps3_name_server(const json_t *domain, char name[MPS3_NAME]);
/** True if a word names the server of a domain. */
bool mps3_is_server(const json_t *domain, const char *word);
/** Return: the domain of a server; NULL if there is none */
const json_t *mps3_look_up(const json_t *root, const char *word);
/** The same, with an error line. */
const json_t *mps3_find_server(const struct call *call, const json_t *root, const char *word);

/** True if a word names the device of a status: its number, or the beginning of its UUID. */
bool mps3_is_device(const json_t *root, const char *word);

/** Refuses a word that names no device. Return: exit code */
int mps3_refuse_device(const struct call *call, const json_t *root, const char *word);

/** Sends a verb of protocol 2 to the service. @ret_root: the answer, the caller's; NULL: not
 * wanted. Return: exit code */
int mps3_order(const struct call *call, const char *verb, const char *const *words, unsigned count,
	json_t **ret_root);

#endif
