// Parser and printer of the configuration, both driven by one table. Daemon, before the loop runs,
// and in a thread of its own when the file is read again. inih splits lines into keys and values.
// The reader passes single lines, and only those that have both, because inih itself reports the
// first error alone, limits names of sections to fifty bytes, and ignores a file that cannot be
// read.

#include "server/config/config.h"

#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "protocol/place.h"
#include "server/config/devices.h"
#include "server/log.h"

enum option_type { OPTION_TEXT, OPTION_CHOICE, OPTION_NUMBER, OPTION_BYTES };

struct option_row {
	const char *key;
	enum option_type type;
	size_t offset;
	uint64_t initial, least, most;
	const char *text; /* TEXT: default; CHOICE: default name */
	const char *choices;
	const char *help; /* NULL: not shown */
};

static const struct option_row rows[] = {
#define TEXT(key, initial, help)                                                                             \
	{#key, OPTION_TEXT, offsetof(struct config, key), 0, 0, 0, initial, NULL, help},
#define CHOICE(key, initial, choices, help)                                                                  \
	{#key, OPTION_CHOICE, offsetof(struct config, key), 0, 0, 0, initial, choices, help},
#define NUMBER(key, initial, least, most, help)                                                              \
	{#key, OPTION_NUMBER, offsetof(struct config, key), initial, least, most, NULL, NULL, help},
#define BYTES(key, initial, least, most, help)                                                               \
	{#key, OPTION_BYTES, offsetof(struct config, key), initial, least, most, NULL, NULL, help},
#define TUNING(key, initial, least, most)                                                                    \
	{#key, OPTION_NUMBER, offsetof(struct config, key), initial, least, most, NULL, NULL, NULL},
#include "server/config/options.def"
#undef TEXT
#undef CHOICE
#undef NUMBER
#undef BYTES
#undef TUNING
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct option_row *find_row(const char *key)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strcmp(rows[i].key, key) == 0)
			return &rows[i];
	return NULL;
}

/* The first key that begins with the text. Return: "" if none does */
static const char *find_longer_key(const char *beginning)
{
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].help && !strncmp(rows[i].key, beginning, strlen(beginning)))
			return rows[i].key;
	return "";
}

static int refuse_key(const char *key, char *text, size_t size)
{
	const char *longer = find_longer_key(key);

	snprintf(text, size, "%s: no such key%s%s%s (frmps-server --help-config lists them)", key,
		*longer ? ", but " : "", longer, *longer ? " is one" : "");
	return CONFIG_E_INVALID;
}

static uint64_t *number_at(struct config *config, const struct option_row *row)
{
	return (uint64_t *)((char *)config + row->offset);
}

/* Position of a name in "a|b|c", or -1. */
static int find_choice(const char *choices, const char *name)
{
	size_t length = strlen(name);
	int position = 0;

	for (const char *at = choices; at; at = strchr(at, '|'), position++) {
		at += *at == '|';
		if (length && strncmp(at, name, length) == 0 && (at[length] == '|' || !at[length]))
			return position;
	}
	return -1;
}

bool config_parse_number(const char *text, bool suffix, uint64_t *ret_number)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;
	unsigned shift = 0;
	unsigned long long value;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno)
		return false;
	if (suffix && *end > ' ' && (unit = strchr(units, *end & ~0x20))) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (*end || (shift && value >> (64 - shift)))
		return false;
	*ret_number = (uint64_t)value << shift;
	return true;
}

static int set_number(
	struct config *config, const struct option_row *row, const char *value, char *text, size_t size)
{
	uint64_t number;

	if (!config_parse_number(value, row->type == OPTION_BYTES, &number)) {
		snprintf(text, size, "%s: \"%s\" is not a number%s", row->key, value,
			row->type == OPTION_BYTES ? " of bytes (digits, then K, M, G or T)" : "");
		return CONFIG_E_INVALID;
	}
	if (number < row->least || number > row->most) {
		snprintf(text, size, "%s: %llu is out of range, allowed is %llu to %llu", row->key,
			(unsigned long long)number, (unsigned long long)row->least,
			(unsigned long long)row->most);
		return CONFIG_E_INVALID;
	}
	*number_at(config, row) = number;
	return 0;
}

static int set_choice(
	struct config *config, const struct option_row *row, const char *value, char *text, size_t size)
{
	int position = find_choice(row->choices, value);

	if (position < 0) {
		snprintf(text, size, "%s: \"%s\" is not one of %s", row->key, value, row->choices);
		return CONFIG_E_INVALID;
	}
	*number_at(config, row) = (uint64_t)position;
	return 0;
}

static int set_text(
	struct config *config, const struct option_row *row, const char *value, char *text, size_t size)
{
	if (strlen(value) >= CONFIG_TEXT_MAX) {
		snprintf(text, size, "%s: longer than %d bytes", row->key, CONFIG_TEXT_MAX - 1);
		return CONFIG_E_INVALID;
	}
	if (strcmp(row->key, "devices") == 0 && devices_check(value, text, size))
		return CONFIG_E_INVALID;
	if (strcmp(row->key, "backend") == 0 && *value != '/' && (!*value || strchr(value, '/'))) {
		snprintf(text, size, "backend: \"%s\" is neither a name nor an absolute path", value);
		return CONFIG_E_INVALID;
	}
	strcpy((char *)config + row->offset, value);
	return 0;
}

bool config_uses_gpu(const struct config *config)
{
	return strcmp(config->backend, CONFIG_BACKEND_CUDA) == 0;
}

int config_set(struct config *config, const char *key, const char *value, char *text, size_t size)
{
	const struct option_row *row = find_row(key);

	if (!row)
		return refuse_key(key, text, size);
	if (row->type == OPTION_TEXT)
		return set_text(config, row, value, text, size);
	if (row->type == OPTION_CHOICE)
		return set_choice(config, row, value, text, size);
	return set_number(config, row, value, text, size);
}

void config_init(struct config *config)
{
	char text[64];

	memset(config, 0, sizeof(*config));
	for (size_t i = 0; i < ROWS; i++) {
		if (rows[i].text)
			config_set(config, rows[i].key, rows[i].text, text, sizeof(text));
		else
			*number_at(config, &rows[i]) = rows[i].initial;
	}
}

/* Room for the number of wrong lines without a text of their own. */
#define MORE_MAX 32u

struct reading {
	struct config *config;
	const char *path;
	FILE *file;
	char *bytes; /* of the line */
	size_t capacity;
	unsigned line;	    /* line number */
	int error;	    /* of the file: errno */
	unsigned set[ROWS]; /* the line of this section that sets a key, 0: none yet */
	struct rule *rule;  /* the section; NULL: none has begun */
	struct rule lost;   /* stands for a section that is refused: its keys hold for nobody */
	/* The errors: a line for each wrong line of the file. */
	char *text;
	size_t size, used;
	unsigned more; /* lines for which there was no room */
};

static void complain(struct reading *reading, unsigned line, const char *what)
{
	char *at = reading->text + reading->used;
	const size_t room = reading->size - reading->used;
	const size_t length = (size_t)snprintf(
		at, room, "%s%s:%u: %s", reading->used ? "\n" : "", reading->path, line, what);

	/* A file may contain any bytes. */
	if (room > 1)
		log_clean(at + (reading->used != 0));
	if (!reading->used || length + MORE_MAX < room) {
		reading->used += length < room ? length : room - 1;
	} else {
		*at = '\0';
		reading->more++;
	}
}

/* A comment begins the line, or follows white space. */
static void cut_comment(char *line)
{
	for (char *at = line; (at = strpbrk(at, "#;")); at++)
		if (at == line || strchr(" \t", at[-1])) {
			*at = '\0';
			return;
		}
}

static void cut_space(char *text)
{
	size_t length = strlen(text);

	while (length && strchr(" \t\r\n\v\f", text[length - 1]))
		text[--length] = '\0';
}

static unsigned *line_of(struct reading *reading, const char *key)
{
	return &reading->set[find_row(key) - rows];
}

static bool contradicts(uint64_t limit, uint64_t guarantee)
{
	return limit && guarantee > limit;
}

/* Checks keys against each other, and names the later line. The later one is named. */
static void end_section(struct reading *reading)
{
	const struct config *config = reading->config;
	const struct rule *rule = reading->rule;
	const unsigned line = *line_of(reading, "memory_limit"),
		       other = *line_of(reading, "memory_guarantee");
	/* Without a limit of its own, a section has the limit of all. */
	const uint64_t limit = rule && line ? rule->terms.memory_limit : config->memory_limit;

	if (contradicts(limit, rule ? rule->terms.memory_guarantee : config->memory_guarantee))
		complain(reading, line > other ? line : other, "memory_guarantee is more than memory_limit");
}

static void begin_section(struct reading *reading, char *line)
{
	char *end = line + strlen(line) - 1, what[256] = "not a section of the form \"[user NAME]\"";

	end_section(reading);
	memset(reading->set, 0, sizeof(reading->set));
	reading->rule = NULL;
	if (*end == ']') {
		*end = '\0';
		cut_space(line + 1);
		reading->rule = rules_begin(&reading->config->rules, line + 1, what, sizeof(what));
	}
	if (reading->rule)
		return;
	complain(reading, reading->line, what);
	reading->lost = (struct rule){0};
	reading->rule = &reading->lost;
}

/* @row: of the key's term. Return: NULL, or where the key stands instead of in such a section */
static const char *misplaced(const struct rule *rule, const char *key, int row)
{
	if (row < 0)
		return "is for the whole service, and stands before the first section";
	if (rule->kind != RULE_DEVICE && !strcmp(key, "device_memory"))
		return "is a device's, and stands before the first section or in [device NUMBER]";
	if (rule->kind != RULE_DEVICE && rule->kind != RULE_USER && !strcmp(key, "swap_host_bytes"))
		return "is a user's, and stands before the first section, in [user NAME] or in [device "
		       "NUMBER]";
	return NULL;
}

/* A key of a section. Its value is read like a value for everybody. */
static int set_term(struct rule *rule, const char *key, const char *value, char *text, size_t size)
{
	struct config scratch;
	const int row = term_find(key);
	const char *where = misplaced(rule, key, row);
	int r;

	if (where) {
		snprintf(text, size, "%s: %s", key, where);
		return CONFIG_E_INVALID;
	}
	config_init(&scratch);
	r = config_set(&scratch, key, value, text, size);
	if (r)
		return r;
	*term_at(&rule->terms, row) = *number_at(&scratch, find_row(key));
	rule->set |= 1u << row;
	return 0;
}

static int read_key(void *context, const char *section, const char *key, const char *value)
{
	struct reading *reading = context;
	unsigned *line = find_row(key) ? line_of(reading, key) : NULL;
	char what[256];
	int r;

	(void)section;
	if (line && *line) {
		snprintf(what, sizeof(what), "%s: line %u sets it already", key, *line);
		r = CONFIG_E_INVALID;
	} else {
		r = !line	    ? refuse_key(key, what, sizeof(what))
		    : reading->rule ? set_term(reading->rule, key, value, what, sizeof(what))
				    : config_set(reading->config, key, value, what, sizeof(what));
	}
	if (r)
		complain(reading, reading->line, what);
	else
		*line = reading->line;
	return 1;
}

/* Return: whether the line sets a key */
static bool sets_key(struct reading *reading, char *line, bool whole, int size)
{
	const char *end = strpbrk(line, "=:");
	char what[64] = "not a line of the form \"key = value\"";

	if (!*line)
		return false;
	if (whole && *line == '[') {
		begin_section(reading, line);
		return false;
	}
	if (!whole)
		strcpy(what, "no text");
	else if (strlen(line) >= (size_t)size)
		snprintf(what, sizeof(what), "longer than %d bytes", size - 1);
	else if (end && end != line)
		return true;
	complain(reading, reading->line, what);
	return false;
}

/* Return: the next line that sets a key; NULL: there is none */
static char *next_key(char *to, int size, void *context)
{
	struct reading *reading = context;
	ssize_t length;
	char *line;

	while ((length = getline(&reading->bytes, &reading->capacity, reading->file)) >= 0) {
		bool whole = strlen(reading->bytes) == (size_t)length;

		line = reading->bytes;
		/* The byte order mark of some editors. */
		if (!reading->line++ && strncmp(line, "\xef\xbb\xbf", 3) == 0)
			line += 3;
		line += strspn(line, " \t\r\v\f");
		cut_comment(line);
		cut_space(line);
		if (sets_key(reading, line, whole, size))
			return strcpy(to, line);
	}
	reading->error = feof(reading->file) ? 0 : errno;
	return NULL;
}

static int read_all(struct reading *reading)
{
	if (ini_parse_stream(next_key, reading, read_key, reading) < 0)
		return ENOMEM;
	end_section(reading);
	if (reading->more)
		snprintf(reading->text + reading->used, reading->size - reading->used, "\nand %u more",
			reading->more);
	return reading->error;
}

/* Reading a pipe or a device could wait for ever. Return: NULL, with errno; EPIPE for a pipe or a
 * device */
static FILE *open_file(const char *path)
{
	const dev_t null = makedev(1, 3);
	struct stat status;

	if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode) &&
		status.st_rdev != null) {
		errno = EPIPE;
		return NULL;
	}
	return fopen(path, "re");
}

int config_read(struct config *config, const char *path, char *ret_text, size_t text_size)
{
	struct reading reading = {
		.config = config, .path = path, .file = open_file(path), .text = ret_text, .size = text_size};
	int error = reading.file ? read_all(&reading) : errno;

	free(reading.bytes);
	if (error)
		snprintf(ret_text, text_size, "%s: %s", path,
			error == EPIPE ? "neither a regular file nor /dev/null" : strerror(error));
	if (!reading.file)
		return error == ENOENT ? CONFIG_E_MISSING : CONFIG_E_INVALID;
	fclose(reading.file);
	return error || reading.used ? CONFIG_E_INVALID : 0;
}

int config_default_socket(struct config *config, char *ret_text, size_t text_size)
{
	const char *given = getenv("FRMPS_SOCKET"), *runtime = getenv("XDG_RUNTIME_DIR");
	char path[512];

	if (config->socket[0])
		return 0;
	if (given && *given)
		return config_set(config, "socket", given, ret_text, text_size);
	if (geteuid() == 0)
		return config_set(config, "socket", PLACE_SYSTEM, ret_text, text_size);
	if (!runtime || !*runtime) {
		snprintf(ret_text, text_size,
			"socket: XDG_RUNTIME_DIR is not set, give a path with --socket or FRMPS_SOCKET");
		return CONFIG_E_INVALID;
	}
	snprintf(path, sizeof(path), "%s/" PLACE_NAME, runtime);
	return config_set(config, "socket", path, ret_text, text_size);
}

int config_load(struct config *config, const char *file, const struct config_setting *settings,
	unsigned count, char *ret_text, size_t text_size)
{
	int r;

	config_init(config);
	config->file = file;
	config->settings = settings;
	config->setting_count = count;
	r = config_read(config, file ? file : CONFIG_DEFAULT_FILE, ret_text, text_size);
	if (r == CONFIG_E_MISSING && !file)
		r = 0;
	for (unsigned i = 0; !r && i < count; i++)
		if (config_set(config, settings[i].key, settings[i].value, ret_text, text_size))
			r = CONFIG_E_SETTING;
	config_rules(config, &config->rules);
	return r ? r : config_default_socket(config, ret_text, text_size);
}

void config_rules(const struct config *config, struct rules *ret_rules)
{
	*ret_rules = config->rules;
#define TERM(key) ret_rules->general.key = config->key;
#include "server/config/terms.def"
#undef TERM
}

static bool differs(const struct config *config, const struct config *other, const struct option_row *row)
{
	const char *value = (const char *)config + row->offset, *another = (const char *)other + row->offset;

	return row->type == OPTION_TEXT ? strcmp(value, another) != 0
					: memcmp(value, another, sizeof(uint64_t)) != 0;
}

void config_differences(const struct config *config, const struct config *other, char *ret_text, size_t size)
{
	size_t used = 0;

	*ret_text = '\0';
	for (size_t i = 0; i < ROWS && used < size; i++)
		if (term_find(rows[i].key) < 0 && differs(config, other, &rows[i]))
			used += (size_t)snprintf(
				ret_text + used, size - used, "%s%s", used ? ", " : "", rows[i].key);
}

/* Prints a text as comment lines of at most 90 bytes. */
static void print_wrapped(FILE *out, const char *text)
{
	while (*text) {
		size_t length = strlen(text), cut = length > 90 ? 90 : length;

		while (length > 90 && cut > 1 && text[cut] != ' ')
			cut--;
		fprintf(out, "# %.*s\n", (int)cut, text);
		text += cut + (text[cut] == ' ');
	}
}

void config_help(FILE *out)
{
	fputs("# Configuration of the frmps service, see frmps.conf(5). Each key stands with its default: "
	      "remove the\n"
	      "# mark in front of those that you change.\n\n",
		out);
	for (size_t i = 0; i < ROWS; i++) {
		const struct option_row *row = &rows[i];

		if (!row->help)
			continue;
		print_wrapped(out, row->help);
		if (row->choices)
			fprintf(out, "# One of %s.\n", row->choices);
		else if (!row->text)
			fprintf(out, "# %llu to %llu%s.\n", (unsigned long long)row->least,
				(unsigned long long)row->most,
				row->type == OPTION_BYTES ? " bytes; K, M, G and T are powers of 1024" : "");
		if (term_find(row->key) >= 0)
			fputs("# May also stand in a section.\n", out);
		if (row->text)
			fprintf(out, "#%s = %s\n\n", row->key, row->text);
		else
			fprintf(out, "#%s = %llu\n\n", row->key, (unsigned long long)row->initial);
	}
	print_wrapped(out, TERMS_HELP);
	fputs("# [user 1000]\n# memory_limit = 20G\n", out);
}
