// See mps_config.h. Of TOML there are comments, tables, arrays of tables, and keys with a string
// without escapes, a whole number or a truth value; anything else is an error.

#include "server/tools/mps_config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 65
#define WORDS_MAX  10 /* of a verb, including the program's name */
#define VERBS_MAX  256

struct verb {
	char *words[WORDS_MAX + 1];
	int count;
	int empty; /* a verb with so many words has no effect, and is omitted */
};

enum section {
	SECTION_TOP,
	SECTION_SERVER,	   /* [servers.NAME] */
	SECTION_NAMESPACE, /* [servers.NAME.namespaces.NAME] */
	SECTION_DEVICE,	   /* [[servers.NAME.devices]] */
	SECTION_PARTITION, /* [[servers.NAME.devices.sm_partitions]] */
	SECTION_FEATURE,   /* [features.NAME] */
};

struct mps_config {
	struct verb verbs[VERBS_MAX];
	int count;
	/* Where the reader is. */
	enum section section;
	struct verb *create, *set; /* that keys of the section belong to; of a server both */
	char server[NAME_BYTES], device[NAME_BYTES], feature[NAME_BYTES];
};

/* Words that a key adds to the verbs of its section: --OPTION=VALUE. */
static const struct {
	enum section section;
	const char *key, *option;
	bool sets; /* of a server: for `server set` */
} keys[] = {
	{SECTION_SERVER, "uid", "uid", false},
	{SECTION_SERVER, "allowed_devices", "allowed-devices", false},
	{SECTION_SERVER, "locality_domains", "locality-domains", false},
	{SECTION_SERVER, "pinned_memory_limit", "pinned-memory-limit", true},
	{SECTION_SERVER, "active_thread_percentage", "active-thread-percentage", true},
	{SECTION_SERVER, "client_priority", "client-priority", true},
	{SECTION_NAMESPACE, "pinned_memory_limit", "pinned-memory-limit", true},
	{SECTION_NAMESPACE, "active_thread_percentage", "active-thread-percentage", true},
	{SECTION_NAMESPACE, "client_priority", "client-priority", true},
	{SECTION_PARTITION, "chunks", "chunks", false},
	{SECTION_PARTITION, "include_remainder", "include-remainder", false},
};

static const char no_memory[] = "there is no memory";

/* Return: NULL, or the error */
static const char *add_word(struct verb *verb, const char *format, const char *first, const char *second)
{
	if (verb->count == WORDS_MAX)
		return "there are too many keys";
	if (asprintf(&verb->words[verb->count], format, first, second) < 0) {
		verb->words[verb->count] = NULL;
		return no_memory;
	}
	verb->count++;
	return NULL;
}

/* Begins a verb of a module. Return: NULL, or the error */
static const char *add_verb(
	struct mps_config *config, const char *module, const char *name, const char *what, struct verb **ret)
{
	struct verb *verb = &config->verbs[config->count];
	const char *wrong;

	if (config->count == VERBS_MAX)
		return "there are too many tables";
	config->count++;
	wrong = add_word(verb, "%s", "", NULL);
	wrong = wrong ? wrong : add_word(verb, "%s", module, NULL);
	wrong = wrong ? wrong : add_word(verb, "%s", name, NULL);
	wrong = wrong || !*what ? wrong : add_word(verb, "%s", what, NULL);
	*ret = verb;
	return wrong;
}

static bool is_name(const char *text)
{
	size_t length = strlen(text);

	return length && length < NAME_BYTES &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length;
}

#define PARTS_MAX 5

/* Splits a table's name, which is changed. Return: its parts; 0: invalid */
static int split(char *text, const char *parts[PARTS_MAX])
{
	int count = 0;
	char *part;

	while ((part = strsep(&text, "."))) {
		part += strspn(part, " \t");
		part[strcspn(part, " \t")] = '\0';
		if (count == PARTS_MAX || !is_name(part))
			return 0;
		parts[count++] = part;
	}
	return count;
}

static const char *begin_server(struct mps_config *config, const char *name)
{
	const char *wrong = add_verb(config, "server", "create", name, &config->create);

	config->section = SECTION_SERVER;
	wrong = wrong ? wrong : add_verb(config, "server", "set", name, &config->set);
	if (!wrong)
		config->set->empty = config->set->count;
	return wrong;
}

static const char *begin_namespace(struct mps_config *config, const char *name)
{
	const char *wrong = add_verb(config, "namespace", "set", name, &config->set);

	config->section = SECTION_NAMESPACE;
	wrong = wrong ? wrong : add_word(config->set, "--server=%s", config->server, NULL);
	if (!wrong && !strcmp(name, "default"))
		config->set->empty = config->set->count;
	return wrong;
}

static const char *begin_partition(struct mps_config *config)
{
	const char *wrong = add_verb(config, "sm-partition", "create", "", &config->create);

	if (!*config->device)
		return "a device needs its uuid before its sm_partitions";
	config->section = SECTION_PARTITION;
	wrong = wrong ? wrong : add_word(config->create, "--server=%s", config->server, NULL);
	return wrong ? wrong : add_word(config->create, "--device=%s", config->device, NULL);
}

/* A [table] or an element of an [[array]] begins. @text: the name, changed. Return: NULL, or the
 * error */
static const char *begin_section(struct mps_config *config, char *text, bool array)
{
	const char *parts[PARTS_MAX];
	int count = split(text, parts);
	const bool server = count >= 2 && !strcmp(parts[0], "servers");

	if (server)
		strcpy(config->server, parts[1]);
	if (server && !array && count == 2)
		return begin_server(config, parts[1]);
	if (server && !array && count == 4 && !strcmp(parts[2], "namespaces"))
		return begin_namespace(config, parts[3]);
	if (server && array && count == 3 && !strcmp(parts[2], "devices")) {
		config->section = SECTION_DEVICE;
		*config->device = '\0';
		return NULL;
	}
	if (server && array && count == 4 && !strcmp(parts[2], "devices") &&
		!strcmp(parts[3], "sm_partitions"))
		return begin_partition(config);
	if (count == 2 && !array && !strcmp(parts[0], "features")) {
		config->section = SECTION_FEATURE;
		strcpy(config->feature, parts[1]);
		return NULL;
	}
	return "there is no such table";
}

/* Handles a key that is no option. Return: NULL, or the error */
static const char *take_other(struct mps_config *config, const char *key, const char *value)
{
	struct verb *verb;

	switch (config->section) {
	case SECTION_TOP:
		if (strcmp(key, "schema_version"))
			break;
		return strcmp(value, "1.0") ? "only schema_version 1.0 is known" : NULL;
	case SECTION_DEVICE:
		if (strcmp(key, "uuid"))
			break;
		if (!is_name(value))
			return "it is no UUID";
		strcpy(config->device, value);
		return NULL;
	case SECTION_PARTITION:
		if (strcmp(key, "name"))
			break;
		return add_word(config->create, "%s", value, NULL);
	case SECTION_FEATURE:
		if (!strcmp(key, "enabled"))
			return add_verb(config, "feature", strcmp(value, "true") ? "disable" : "enable",
				config->feature, &verb);
		if (strcmp(key, "audit_log") && strcmp(key, "default_socket"))
			break;
		if (!strcmp(value, "false") || !strcmp(value, "off"))
			return NULL;
		return add_verb(config, "feature", "enable", config->feature, &verb);
	case SECTION_SERVER:
	case SECTION_NAMESPACE:
		break;
	}
	return "there is no such key here";
}

static const char *take_key(struct mps_config *config, const char *key, const char *value)
{
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (keys[i].section == config->section && !strcmp(keys[i].key, key))
			return add_word(keys[i].sets ? config->set : config->create, "--%s=%s",
				keys[i].option, value);
	return take_other(config, key, value);
}

/* The end of a line: blanks and a comment. */
static bool ends(const char *text)
{
	text += strspn(text, " \t\r\n");
	return !*text || *text == '#';
}

/* Removes the quotes of a value, which is changed. Return: the value; NULL: invalid */
static char *take_value(char *text)
{
	const bool quoted = *text == '"';
	size_t length =
		quoted ? strcspn(++text, "\"\\\n") : strspn(text, "0123456789-abcdefghijklmnopqrstuvwxyz");

	if ((quoted && text[length] != '"') || (!quoted && !length) || !ends(text + length + quoted))
		return NULL;
	text[length] = '\0';
	return text;
}

/* Return: NULL, or the error */
static const char *take_line(struct mps_config *config, char *line)
{
	char *key = line + strspn(line, " \t"), *equals, *value;

	if (ends(key))
		return NULL;
	if (*key == '[') {
		const bool array = key[1] == '[';
		char *close = strstr(key, array ? "]]" : "]");

		if (!close || !ends(close + 1 + array))
			return "a table's name ends with a bracket";
		*close = '\0';
		return begin_section(config, key + 1 + array, array);
	}
	equals = strchr(key, '=');
	value = equals ? take_value(equals + 1 + strspn(equals + 1, " \t")) : NULL;
	if (!value)
		return "it is no KEY = VALUE with a string, a whole number, true or false";
	*equals = '\0';
	key[strcspn(key, " \t")] = '\0';
	return take_key(config, key, value);
}

struct mps_config *mps_config_free(struct mps_config *config)
{
	for (int i = 0; config && i < config->count; i++)
		for (int j = 0; j < config->verbs[i].count; j++)
			free(config->verbs[i].words[j]);
	free(config);
	return NULL;
}

struct mps_config *mps_config_read(const char *path, const char *program)
{
	struct mps_config *config = calloc(1, sizeof(*config));
	FILE *file = fopen(path, "re");
	const char *wrong = config ? NULL : no_memory;
	char *line = NULL;
	size_t room = 0;
	unsigned number = 0;

	if (!file) {
		fprintf(stderr, "%s: %s: %s\n", program, path, strerror(errno));
		return mps_config_free(config);
	}
	while (!wrong && getline(&line, &room, file) >= 0) {
		number++;
		wrong = take_line(config, line);
	}
	free(line);
	fclose(file);
	if (!wrong)
		return config;
	fprintf(stderr, "%s: %s:%u: %s\n", program, path, number, wrong);
	return mps_config_free(config);
}

int mps_config_run(
	struct mps_config *config, int (*run)(void *context, int count, char **arguments), void *context)
{
	int r = 0;

	for (int i = 0; !r && i < config->count; i++) {
		struct verb *verb = &config->verbs[i];
		char *words[WORDS_MAX + 1];

		memcpy(words, verb->words, sizeof(words));
		if (verb->count != verb->empty)
			r = run(context, verb->count, words);
	}
	return r;
}
