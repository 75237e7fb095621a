// Protocol 3 of stock MPS: servers, and namespaces, of which each server has one. See mps3.h.

#include "server/tools/mps3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "server/tools/field.h"
#include "server/tools/mps3_inside.h"
#include "server/tools/mps_inside.h"

/* Time limit for the start of a server, and for its end: the service itself tries a few times. */
#define START_SECONDS 60
#define START_STEP_NS 20000000L

static const char *const server_columns[] = {
	"name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids"};
static const char *const namespace_columns[] = {"name", "server", "server-status", "pinned-memory-limit",
	"active-thread-percentage", "client-priority", "pipe-directory"};

/* The states of protocol 3. */
static const char *state_of(const json_t *root, const json_t *domain)
{
	const char *state = mps_state_of(root, domain);

	return !strcmp(state, "ACTIVE") ? "Ready" : !strcmp(state, "FAULT") ? "Fault" : "Initializing";
}

/* @text: MPS3_NAME * 2 */
static const char *folder_of(const json_t *root, char *text)
{
	const char *socket = field_text(root, "socket", "-"), *slash = strrchr(socket, '/');

	snprintf(text, MPS3_NAME * 2, "%.*s", slash ? (int)(slash - socket) : 1, slash ? socket : "-");
	return text;
}

static json_t *server_row(const json_t *root, const json_t *domain)
{
	char name[MPS3_NAME], folder[MPS3_NAME * 2], uid[24], pid[24];

	mps3_name_server(domain, name);
	snprintf(uid, sizeof(uid), "%lld", field_number(domain, "uid"));
	snprintf(pid, sizeof(pid), "%lld", mps_server_of(domain));
	return json_pack("[sssssss]", name, uid, pid, state_of(root, domain), folder_of(root, folder),
		mps_uuid(root), "-");
}

/* @only: a server; NULL: all */
static struct table servers_table(const json_t *root, const json_t *only)
{
	struct table table = {COLUMNS(server_columns), json_array()};
	json_t *domain;
	size_t index;

	json_array_foreach (json_object_get(root, "domains"), index, domain)
		if (mps_server_of(domain) && (!only || domain == only))
			json_array_append_new(table.rows, server_row(root, domain));
	return table;
}

int mps3_server_list(const struct call *call)
{
	const json_t *only = NULL;
	struct words words;
	struct table table;
	int code = mps3_take(call, KEY_BIT(FORMAT), 0, 1, &words);
	json_t *root = code ? NULL : mps_status(call, &code);

	if (!root)
		return code;
	if (words.count)
		only = mps3_find_server(call, root, words.names[0]);
	if (words.count && !only) {
		json_decref(root);
		return 1;
	}
	table = servers_table(root, only);
	json_decref(root);
	return mps3_print(call, &table, words.values[KEY_FORMAT]);
}

int mps3_server_get(const struct call *call)
{
	struct words words;
	struct table table;
	const json_t *domain;
	int code = mps3_take(call, 0, 2, 2, &words);
	json_t *root = code ? NULL : mps_status(call, &code);

	if (!root)
		return code;
	domain = mps3_find_server(call, root, words.names[0]);
	if (domain)
		table = servers_table(root, domain);
	json_decref(root);
	return domain ? mps3_print_field(call, &table, words.names[1]) : 1;
}

/* Waits until a server is there, or gone. Return: exit code */
static int await_server(const struct call *call, const char *name, bool is_wanted)
{
	const struct timespec step = {.tv_nsec = START_STEP_NS};
	struct timespec now, start;
	int code;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (now = start; now.tv_sec - start.tv_sec < START_SECONDS; clock_gettime(CLOCK_MONOTONIC, &now)) {
		json_t *root = mps_status(call, &code);
		bool is_done = root && !mps3_look_up(root, name) == !is_wanted;

		json_decref(root);
		if (!root || is_done)
			return root ? 0 : code;
		nanosleep(&step, NULL);
	}
	return mps_refuse(call, "server %s does not %s within %d s (frmpsctl status says why)", name,
		is_wanted ? "start" : "end", START_SECONDS);
}

/* Checks a list of devices. With several, it is about each in turn.
 * @ret_is_listed: whether the list has this device. Return: exit code: not 0 if it names a device
 * that the service does not have */
static int check_devices(const struct call *call, const char *list, bool *ret_is_listed)
{
	char *copy = list ? strdup(list) : NULL, *rest = copy, *word;
	int code = 0;
	json_t *root = mps_status(call, &code);

	*ret_is_listed = !list;
	while (root && !code && (word = strsep(&rest, ","))) {
		if (mps3_is_device(root, word))
			*ret_is_listed = true;
		else if (call->devices < 2)
			code = mps3_refuse_device(call, root, word);
	}
	json_decref(root);
	free(copy);
	return code;
}

int mps3_server_create(const struct call *call)
{
	struct words words;
	char name[MPS3_NAME], uid[24], *end;
	unsigned long number = getuid();
	int code = mps3_take(
		call, KEY_BIT(UID) | KEY_BIT(ALLOWED_DEVICES) | KEY_BIT(LOCALITY_DOMAINS), 0, 1, &words);
	const char *given = words.values[KEY_UID];
	bool is_listed;

	code = code ? code : mps3_refuse_true(call, words.values[KEY_LOCALITY_DOMAINS], "locality domains");
	if (code)
		return code;
	if (given)
		number = strtoul(given, &end, 10);
	if (given ? *given < '0' || *given > '9' || *end : !words.count) {
		mps_refuse(call, "it takes the name of a user, or --uid and his number");
		return EX_USAGE;
	}
	mps3_name_user((long long)number, name);
	if (words.count && strcmp(words.names[0], name))
		return mps_refuse(call,
			"a server has its user's name here, and one is all that a user has: uid %lu has %s, "
			"not %s",
			number, name, words.names[0]);
	code = check_devices(call, words.values[KEY_ALLOWED_DEVICES], &is_listed);
	if (!code && !is_listed)
		return 0;
	snprintf(uid, sizeof(uid), "%lu", number);
	code = code ? code : mps3_order(call, "start_server", (const char *[]){"-uid", uid}, 2, NULL);
	return code ? code : await_server(call, name, true);
}

/* Programs of a domain. */
static unsigned count_clients(const json_t *domain)
{
	unsigned count = 0;
	size_t index;
	json_t *client;

	json_array_foreach (json_object_get(domain, "clients"), index, client)
		count += mps_is_client(client);
	return count;
}

/* The PID of a server, for the verbs of protocol 2. @number: of its device. Return: exit code */
static int find_pid(const struct call *call, const char *name, char pid[24], char number[MPS_NUMBER],
	unsigned *ret_clients)
{
	int code = 0;
	json_t *root = mps_status(call, &code);
	const json_t *domain = root ? mps3_find_server(call, root, name) : NULL;

	if (domain) {
		snprintf(pid, 24, "%lld", mps_server_of(domain));
		mps_number(root, number);
		*ret_clients = count_clients(domain);
	}
	json_decref(root);
	return domain ? 0 : code ? code : 1;
}

int mps3_server_delete(const struct call *call)
{
	struct words words;
	unsigned clients = 0;
	char pid[24], number[MPS_NUMBER];
	int code = mps3_take(call, KEY_BIT(FORCE), 1, 1, &words);

	code = code ? code : find_pid(call, words.names[0], pid, number, &clients);
	if (code)
		return code;
	if (clients && !words.values[KEY_FORCE])
		return mps_refuse(
			call, "server %s has %u clients (--force terminates them)", words.names[0], clients);
	code = mps3_order(
		call, "shutdown_server", (const char *[]){pid, "-f"}, words.values[KEY_FORCE] ? 2 : 1, NULL);
	return code ? code : await_server(call, pid, false);
}

/* Limits of a server, which has a single namespace. Return: exit code */
static int set_limits(const struct call *call, const char *server, const struct words *words)
{
	const char *memory = words->values[KEY_MEMORY], *percentage = words->values[KEY_PERCENTAGE],
		   *priority = words->values[KEY_PRIORITY];
	unsigned clients;
	char pid[24], number[MPS_NUMBER];
	int code = mps3_refuse_true(call, words->values[KEY_LOCALITY_DOMAINS], "locality domains");

	if (!code && priority && strcmp(priority, "0"))
		code = mps_refuse(call, "a priority is not a server's here: set_default_client_priority sets "
					"all programs', and key class in a section [user NAME] a user's");
	if (!code && !memory && !percentage && !priority && !words->values[KEY_LOCALITY_DOMAINS]) {
		mps_refuse(call, "it needs --pinned-memory-limit or --active-thread-percentage");
		code = EX_USAGE;
	}
	code = code ? code : find_pid(call, server, pid, number, &clients);
	if (!code && memory)
		code = mps3_order(
			call, "set_device_pinned_mem_limit", (const char *[]){pid, number, memory}, 3, NULL);
	if (!code && percentage)
		code = mps3_order(
			call, "set_active_thread_percentage", (const char *[]){pid, percentage}, 2, NULL);
	return code;
}

int mps3_server_set(const struct call *call)
{
	struct words words;
	int code = mps3_take(call,
		KEY_BIT(MEMORY) | KEY_BIT(PERCENTAGE) | KEY_BIT(PRIORITY) | KEY_BIT(LOCALITY_DOMAINS), 1, 1,
		&words);

	return code ? code : set_limits(call, words.names[0], &words);
}

/*
 * Namespaces: each server has the default namespace
 */

/* Return: exit code */
static int check_namespace(const struct call *call, const char *name)
{
	if (!strcmp(name, "default"))
		return 0;
	return mps_refuse(call,
		"there is no namespace %s: a server has one here, default. Sections [cgroup PATTERN] and "
		"[program PATTERN] of the configuration limit some programs of a user",
		name);
}

int mps3_namespace_set(const struct call *call)
{
	struct words words;
	int code = mps3_take(call,
		KEY_BIT(SERVER) | KEY_BIT(MEMORY) | KEY_BIT(PERCENTAGE) | KEY_BIT(PRIORITY), 1, 1, &words);

	code = code ? code : check_namespace(call, words.names[0]);
	if (!code && !words.values[KEY_SERVER]) {
		mps_refuse(call, "it needs --server");
		code = EX_USAGE;
	}
	return code ? code : set_limits(call, words.values[KEY_SERVER], &words);
}

int mps3_namespace_refuse(const struct call *call)
{
	struct words words;
	int code = mps3_take(call, KEY_BIT(SERVER) | KEY_BIT(FORCE), 1, 1, &words);

	code = code ? code : check_namespace(call, words.names[0]);
	return code ? code : mps_refuse(call, "default is there while its server is");
}

/* The answer to a verb of protocol 2, as text; "-": nothing. @text: 64 bytes. Return: exit code */
static int ask_text(
	const struct call *call, const char *verb, const char *const *words, unsigned count, char *text)
{
	json_t *root = NULL;
	int code = mps3_order(call, verb, words, count, &root);
	const char *answer = field_text(root, "text", "");

	snprintf(text, 64, "%s", *answer ? answer : "-");
	json_decref(root);
	return code;
}

/* Return: exit code */
static int add_namespace(
	const struct call *call, const json_t *root, const json_t *domain, struct table *table)
{
	char name[MPS3_NAME], folder[MPS3_NAME * 2], pid[24], memory[64], percentage[64], priority[64],
		number[MPS_NUMBER];
	int code;

	mps3_name_server(domain, name);
	snprintf(pid, sizeof(pid), "%lld", mps_server_of(domain));
	code = ask_text(call, "get_device_pinned_mem_limit", (const char *[]){pid, mps_number(root, number)},
		2, memory);
	code = code ? code
		    : ask_text(call, "get_active_thread_percentage", (const char *[]){pid}, 1, percentage);
	code = code ? code : ask_text(call, "get_default_client_priority", NULL, 0, priority);
	if (!code)
		json_array_append_new(
			table->rows, json_pack("[sssssss]", "default", name, state_of(root, domain), memory,
					     percentage, priority, folder_of(root, folder)));
	return code;
}

/* @server: NULL: of all. Return: exit code */
static int list_namespaces(const struct call *call, const char *server, struct table *ret_table)
{
	struct table table = {COLUMNS(namespace_columns), NULL};
	int code = 0;
	json_t *root = mps_status(call, &code), *domain;
	size_t index;

	if (!root)
		return code;
	code = server && !mps3_find_server(call, root, server);
	table.rows = json_array();
	json_array_foreach (json_object_get(root, "domains"), index, domain)
		if (!code && mps_server_of(domain) && (!server || mps3_is_server(domain, server)))
			code = add_namespace(call, root, domain, &table);
	json_decref(root);
	if (code)
		json_decref(table.rows);
	*ret_table = table;
	return code;
}

int mps3_namespace_list(const struct call *call)
{
	struct words words;
	struct table table;
	int code = mps3_take(call, KEY_BIT(SERVER) | KEY_BIT(FORMAT), 0, 1, &words);

	code = code || !words.count ? code : check_namespace(call, words.names[0]);
	code = code ? code : list_namespaces(call, words.values[KEY_SERVER], &table);
	return code ? code : mps3_print(call, &table, words.values[KEY_FORMAT]);
}

int mps3_namespace_get(const struct call *call)
{
	struct words words;
	struct table table;
	int code = mps3_take(call, 0, 3, 3, &words);

	code = code ? code : check_namespace(call, words.names[0]);
	code = code ? code : list_namespaces(call, words.names[1], &table);
	return code ? code : mps3_print_field(call, &table, words.names[2]);
}
