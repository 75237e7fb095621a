// See mps3_inside.h.

#include "server/tools/mps3_inside.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sysexits.h>

#include "server/tools/ask.h"
#include "server/tools/field.h"
#include "server/tools/manual.h"
#include "server/tools/mps_inside.h"

/* Keys without a value. */
#define FLAGS (KEY_BIT(FORCE) | KEY_BIT(ALL))

static const char *const key_names[KEY_COUNT] = {
#define KEY(name, text) text,
	MPS3_KEYS(KEY)
#undef KEY
};

/* Return: the key of a word KEY=VALUE, --KEY=VALUE or --FLAG; KEY_COUNT: none */
static enum key find_key(const char *word, const char **ret_value)
{
	const char *name = strncmp(word, "--", 2) ? word : word + 2, *equals = strchr(name, '=');
	size_t length = equals ? (size_t)(equals - name) : strlen(name);

	if (!equals && name == word)
		return KEY_COUNT;
	for (unsigned i = 0; i < KEY_COUNT; i++)
		if (strlen(key_names[i]) == length && !strncmp(name, key_names[i], length) &&
			!equals == !!(FLAGS & 1u << i)) {
			*ret_value = equals ? equals + 1 : "";
			return (enum key)i;
		}
	return KEY_COUNT;
}

int mps3_take(const struct call *call, unsigned keys, unsigned least, unsigned most, struct words *ret_words)
{
	*ret_words = (struct words){.count = 0};
	for (int i = 0; i < call->count; i++) {
		const char *word = call->arguments[i], *value;
		enum key key = find_key(word, &value);

		if (key < KEY_COUNT && keys & 1u << key && !ret_words->values[key]) {
			ret_words->values[key] = value;
		} else if (key == KEY_COUNT && *word != '-' && ret_words->count < most) {
			ret_words->names[ret_words->count++] = word;
		} else {
			mps_refuse(call, "unexpected argument '%s'", word);
			return EX_USAGE;
		}
	}
	if (ret_words->count >= least)
		return 0;
	mps_refuse(call, "a name is missing (--help says which)");
	return EX_USAGE;
}

int mps3_refuse_true(const struct call *call, const char *value, const char *what)
{
	if (!value || !strcmp(value, "false"))
		return 0;
	if (!strcmp(value, "true"))
		return mps_refuse(call, "there are no %s here", what);
	mps_refuse(call, "'%s' is neither true nor false", value);
	return EX_USAGE;
}

bool mps3_is_device(const json_t *root, const char *word)
{
	return mps_is_number(word, field_number(json_object_get(root, "device"), "number")) ||
	       (strlen(word) > strlen("GPU-") && !strncasecmp(word, mps_uuid(root), strlen(word)));
}

int mps3_refuse_device(const struct call *call, const json_t *root, const char *word)
{
	const long long count = field_number(root, "devices");

	if (count > 1)
		return mps_refuse(call, "there is no device %s: the service has %lld, from 0", word, count);
	return mps_refuse(call, "there is no device %s: the service has one, 0", word);
}

/* How many characters a column needs. */
static int measure(const struct table *table, size_t column, bool header)
{
	size_t widest = header ? strlen(table->columns[column]) : 0, index;
	json_t *row;

	json_array_foreach (table->rows, index, row) {
		size_t length = json_string_length(json_array_get(row, column));

		widest = length > widest ? length : widest;
	}
	return (int)widest;
}

static void print_line(const struct table *table, const json_t *row, const char *format, const int *widths)
{
	for (size_t i = 0; i < table->width; i++) {
		const char *text = row ? json_string_value(json_array_get(row, i)) : table->columns[i];

		if (*format == 'c')
			printf("%s%s", i ? "," : "", text);
		else
			printf("%s%-*s", i ? "  " : "", i + 1 < table->width ? widths[i] : 0, text);
	}
	putchar('\n');
}

int mps3_print(const struct call *call, struct table *table, const char *format)
{
	const char *comma = strchr(format ? format : "table", ','), *kind = format ? format : "table";
	size_t length = comma ? (size_t)(comma - kind) : strlen(kind), index;
	bool known = (length == 3 && !strncmp(kind, "csv", 3)) || (length == 5 && !strncmp(kind, "table", 5));
	int widths[16];
	json_t *row;

	if (!known || (comma && strcmp(comma, ",noheader"))) {
		json_decref(table->rows);
		mps_refuse(call, "--format is table or csv, perhaps with ,noheader, not '%s'", kind);
		return EX_USAGE;
	}
	for (size_t i = 0; i < table->width; i++)
		widths[i] = measure(table, i, !comma);
	/* One table for all devices. */
	if (!comma && !call->position)
		print_line(table, NULL, kind, widths);
	json_array_foreach (table->rows, index, row)
		print_line(table, row, kind, widths);
	json_decref(table->rows);
	return manual_flush(stdout);
}

int mps3_print_field(const struct call *call, struct table *table, const char *field)
{
	int code = EX_USAGE;

	for (size_t i = 0; i < table->width; i++)
		if (!strcmp(table->columns[i], field)) {
			puts(json_string_value(json_array_get(json_array_get(table->rows, 0), i)));
			code = manual_flush(stdout);
		}
	json_decref(table->rows);
	if (code == EX_USAGE)
		mps_refuse(call, "there is no field '%s'", field);
	return code;
}

/* Without UTF-8, letters of other alphabets would not be valid JSON. */
static bool is_plain(const char *text)
{
	while (*text > ' ' && *text < 127)
		text++;
	return !*text;
}

void mps3_name_user(long long uid, char name[MPS3_NAME])
{
	const struct passwd *user = getpwuid((uid_t)uid);

	if (user && is_plain(user->pw_name))
		snprintf(name, MPS3_NAME, "%s", user->pw_name);
	else
		snprintf(name, MPS3_NAME, "uid_%lld", uid);
}

/* In a domain for a single program, the first session is the only session. */
void mps3_name_server(const json_t *domain, char name[MPS3_NAME])
{
	const json_t *first = json_array_get(json_object_get(domain, "clients"), 0);
	size_t used;

	mps3_name_user(field_number(domain, "uid"), name);
	used = strlen(name);
	if (json_is_string(json_object_get(domain, "alone")))
		snprintf(name + used, MPS3_NAME - used, "_%lld", first ? field_number(first, "session") : 0);
}

bool mps3_is_server(const json_t *domain, const char *word)
{
	char name[MPS3_NAME];

	mps3_name_server(domain, name);
	return mps_server_of(domain) && (!strcmp(word, name) || mps_is_number(word, mps_server_of(domain)));
}

const json_t *mps3_look_up(const json_t *root, const char *word)
{
	size_t index;
	json_t *domain;

	json_array_foreach (json_object_get(root, "domains"), index, domain)
		if (mps3_is_server(domain, word))
			return domain;
	return NULL;
}

const json_t *mps3_find_server(const struct call *call, const json_t *root, const char *word)
{
	const json_t *domain = mps3_look_up(root, word);

	if (!domain)
		mps_refuse(call, "there is no server %s (server list lists them)", word);
	return domain;
}

int mps3_order(const struct call *call, const char *verb, const char *const *words, unsigned count,
	json_t **ret_root)
{
	int code = 0;
	json_t *root = call_ask(call, verb, &(struct wire_names){words, count}, ASK_SECONDS, &code);

	if (ret_root)
		*ret_root = root;
	else
		json_decref(root);
	return root ? 0 : code;
}
