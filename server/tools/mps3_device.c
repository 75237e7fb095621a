// Protocol 3 of stock MPS: clients, the device, its partitions, and features, of which there are
// none. See mps3.h.

#include "server/tools/mps3.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "server/tools/field.h"
#include "server/tools/manual.h"
#include "server/tools/mps3_inside.h"
#include "server/tools/mps_inside.h"

static const char *const client_columns[] = {"pid", "server", "device", "namespace", "cmd"};
static const char *const client_field_columns[] = {
	"pid", "server", "device", "pci-id", "linux-ns", "maws-ns", "cmd"};
static const char *const device_columns[] = {
	"Ordinal", "Server", "PCI ID", "Device UUID", "Name", "Total SMs", "Total Chunks", "Attributes"};
static const char *const partition_columns[] = {
	"server", "device", "name", "chunks", "sm-count", "include-remainder", "status", "visible-uuid"};
static const char *const feature_columns[] = {"FEATURE", "STATE", "MODULE", "COVERS"};

/*
 * Clients and devices
 */

static const char *command_of(const json_t *client)
{
	return field_text(client, "executable", field_text(client, "program", "-"));
}

/* Every field of a client; the list has some. */
static json_t *client_row(const json_t *root, const json_t *domain, const json_t *client, bool all)
{
	char name[MPS3_NAME], pid[24], space[32], pci[MPS_PCI], number[MPS_NUMBER];

	mps3_name_server(domain, name);
	mps_number(root, number);
	snprintf(pid, sizeof(pid), "%lld", field_number(client, "pid"));
	if (!all)
		return json_pack("[sssss]", pid, name, number, "default", command_of(client));
	mps_describe_namespace(field_number(client, "pid"), space, sizeof(space));
	mps_describe_pci(root, pci);
	return json_pack("[sssssss]", pid, name, number, pci, space, "default", command_of(client));
}

/* The service's status, if the named server exists; without a name always.
 * Return: NULL after an error line. @ret_code: then */
static json_t *status_of_server(const struct call *call, const struct words *words, int *ret_code)
{
	const char *server = words->values[KEY_SERVER];
	json_t *root = mps_status(call, ret_code);

	if (!root || !server || mps3_find_server(call, root, server))
		return root;
	json_decref(root);
	*ret_code = 1;
	return NULL;
}

static bool is_meant(const json_t *domain, const struct words *words)
{
	const char *server = words->values[KEY_SERVER];

	return mps_server_of(domain) && (!server || mps3_is_server(domain, server));
}

int mps3_client_list(const struct call *call)
{
	struct words words;
	struct table table = {COLUMNS(client_columns), NULL};
	int code = mps3_take(call, KEY_BIT(SERVER) | KEY_BIT(ALL) | KEY_BIT(FORMAT), 0, 0, &words);
	json_t *root = code ? NULL : status_of_server(call, &words, &code), *domain, *client;
	size_t i, j;

	if (!root)
		return code;
	table.rows = json_array();
	json_array_foreach (json_object_get(root, "domains"), i, domain) {
		if (!is_meant(domain, &words))
			continue;
		json_array_foreach (json_object_get(domain, "clients"), j, client)
			if (mps_is_client(client))
				json_array_append_new(table.rows, client_row(root, domain, client, false));
	}
	json_decref(root);
	return mps3_print(call, &table, words.values[KEY_FORMAT]);
}

/* @ret_domain: the client's. Return: NULL after an error line */
static const json_t *find_client(
	const struct call *call, const json_t *root, const char *pid, const json_t **ret_domain)
{
	json_t *domain, *client;
	size_t i, j;

	json_array_foreach (json_object_get(root, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, "clients"), j, client)
			if (mps_is_client(client) && mps_is_number(pid, field_number(client, "pid")) &&
				strcmp(pid, "0")) {
				*ret_domain = domain;
				return client;
			}
	mps_refuse(call, "there is no client %s (client list lists them)", pid);
	return NULL;
}

int mps3_client_get(const struct call *call)
{
	struct words words;
	struct table table = {COLUMNS(client_field_columns), NULL};
	int code = mps3_take(call, 0, 2, 2, &words);
	json_t *root = code ? NULL : mps_status(call, &code);
	const json_t *domain, *client = root ? find_client(call, root, words.names[0], &domain) : NULL;

	if (client)
		table.rows = json_pack("[o]", client_row(root, domain, client, true));
	json_decref(root);
	return client ? mps3_print_field(call, &table, words.names[1]) : code ? code : 1;
}

int mps3_client_terminate(const struct call *call)
{
	struct words words;
	int code = mps3_take(call, 0, 1, 1, &words);
	json_t *root = code ? NULL : mps_status(call, &code);
	const json_t *domain, *client = root ? find_client(call, root, words.names[0], &domain) : NULL;
	long long session = client ? field_number(client, "session") : 0;

	json_decref(root);
	return session ? mps_terminate(call, session) : code ? code : 1;
}

/* @server: of the programs that see the device; "-": no user yet */
static json_t *device_row(const json_t *root, const char *server)
{
	const json_t *device = json_object_get(root, "device");
	char pci[MPS_PCI], sms[24], chunks[24], number[MPS_NUMBER];

	mps_describe_pci(root, pci);
	snprintf(sms, sizeof(sms), "%lld", field_number(device, "multiprocessors"));
	snprintf(chunks, sizeof(chunks), "%lld", field_number(device, "chunks"));
	return json_pack("[ssssssss]", mps_number(root, number), server, pci, mps_uuid(root),
		field_text(device, "name", "-"), sms, chunks, "N/A");
}

int mps3_device_list(const struct call *call)
{
	struct words words;
	struct table table = {COLUMNS(device_columns), NULL};
	int code = mps3_take(call, KEY_BIT(SERVER) | KEY_BIT(FORMAT), 0, 0, &words);
	json_t *root = code ? NULL : status_of_server(call, &words, &code), *domain;
	char name[MPS3_NAME];
	size_t index;

	if (!root)
		return code;
	table.rows = json_array();
	json_array_foreach (json_object_get(root, "domains"), index, domain) {
		if (!is_meant(domain, &words))
			continue;
		mps3_name_server(domain, name);
		json_array_append_new(table.rows, device_row(root, name));
	}
	if (!json_array_size(table.rows))
		json_array_append_new(table.rows, device_row(root, "-"));
	json_decref(root);
	return mps3_print(call, &table, words.values[KEY_FORMAT]);
}

/*
 * Partitions: the device has them, and programs of any server may name them
 */

/* Return: exit code: not 0 if a server or device is named that is not there */
static int check_place(const struct call *call, const json_t *root, const struct words *words)
{
	const char *device = words->values[KEY_DEVICE], *server = words->values[KEY_SERVER];

	if (device && !mps3_is_device(root, device))
		return mps3_refuse_device(call, root, device);
	return server && !mps3_find_server(call, root, server);
}

/* Return: NULL if the partition was removed meanwhile */
static const json_t *find_partition(const json_t *root, const char *label)
{
	size_t index;
	json_t *one;

	json_array_foreach (json_object_get(root, "partitions"), index, one)
		if (!strcmp(label, field_text(one, "label", "")))
			return one;
	return NULL;
}

/* Parses the words of a verb on a partition, and asks for the status. Return: exit code */
static int begin_partition(const struct call *call, unsigned keys, struct words *ret_words, json_t **ret_root)
{
	int code = mps3_take(call, keys | KEY_BIT(DEVICE) | KEY_BIT(SERVER), 1, 1, ret_words);

	if (code)
		return code;
	if (!ret_words->values[KEY_DEVICE] || (keys & KEY_BIT(CHUNKS) && !ret_words->values[KEY_CHUNKS])) {
		mps_refuse(call, "it needs --device%s", keys & KEY_BIT(CHUNKS) ? " and --chunks" : "");
		return EX_USAGE;
	}
	code = mps3_refuse_true(call, ret_words->values[KEY_REMAINDER],
		"partitions with the multiprocessors that are in no chunk");
	*ret_root = code ? NULL : mps_status(call, &code);
	if (!*ret_root)
		return code;
	code = check_place(call, *ret_root, ret_words);
	if (code)
		json_decref(*ret_root);
	return code;
}

int mps3_partition_create(const struct call *call)
{
	struct words words;
	const json_t *made;
	json_t *root;
	int code = begin_partition(call, KEY_BIT(CHUNKS) | KEY_BIT(REMAINDER), &words, &root);
	const char *label = words.names[0], *chunks = words.values[KEY_CHUNKS];
	char number[MPS_NUMBER];

	if (code)
		return code;
	mps_number(root, number);
	json_decref(root);
	code = mps3_order(call, "sm_partition", (const char *[]){"add", number, chunks, label}, 4, NULL);
	root = code ? NULL : mps_status(call, &code);
	if (!root)
		return code;
	made = find_partition(root, label);
	printf("SM partition '%s' created on device %s (sm-count=%lld)\nCUDA_MPS_SM_PARTITION=%s/%s\n", label,
		mps_uuid(root), field_number(made, "multiprocessors"), mps_uuid(root),
		field_text(made, "name", "-"));
	json_decref(root);
	return manual_flush(stdout);
}

int mps3_partition_delete(const struct call *call)
{
	struct words words;
	char number[MPS_NUMBER];
	json_t *root;
	int code = begin_partition(call, 0, &words, &root);

	if (code)
		return code;
	mps_number(root, number);
	code = mps3_order(call, "sm_partition", (const char *[]){"rm", number, words.names[0]}, 3, NULL);
	if (!code)
		printf("SM partition '%s' deleted from device %s\n", words.names[0], mps_uuid(root));
	json_decref(root);
	return code ? code : manual_flush(stdout);
}

static json_t *partition_row(const json_t *root, const json_t *one)
{
	char chunks[24], sms[24];

	snprintf(chunks, sizeof(chunks), "%lld", field_number(one, "chunks"));
	snprintf(sms, sizeof(sms), "%lld", field_number(one, "multiprocessors"));
	return json_pack("[ssssssss]", "-", mps_uuid(root),
		field_text(one, "label", field_text(one, "name", "-")), chunks, sms, "false", "created",
		field_text(one, "name", "-"));
}

/* The multiprocessors that no partition has. */
static json_t *rest_row(const json_t *root)
{
	const json_t *device = json_object_get(root, "device");
	long long rest = field_number(device, "free_chunks");
	char chunks[24], sms[24];

	snprintf(chunks, sizeof(chunks), "%lld", rest);
	snprintf(sms, sizeof(sms), "%lld", rest * field_number(device, "chunk_multiprocessors"));
	return json_pack("[ssssssss]", "-", mps_uuid(root), "-", chunks, sms, "-", "unallocated", "-");
}

int mps3_partition_list(const struct call *call)
{
	struct words words;
	struct table table = {COLUMNS(partition_columns), NULL};
	int code = mps3_take(
		call, KEY_BIT(SERVER) | KEY_BIT(DEVICE) | KEY_BIT(ALL) | KEY_BIT(FORMAT), 0, 0, &words);
	json_t *root = code ? NULL : mps_status(call, &code), *one;
	size_t index;

	if (!root)
		return code;
	code = check_place(call, root, &words);
	if (!code) {
		table.rows = json_array();
		json_array_foreach (json_object_get(root, "partitions"), index, one)
			json_array_append_new(table.rows, partition_row(root, one));
		if (field_number(json_object_get(root, "device"), "free_chunks"))
			json_array_append_new(table.rows, rest_row(root));
	}
	json_decref(root);
	return code ? code : mps3_print(call, &table, words.values[KEY_FORMAT]);
}

/*
 * Features: none
 */

static const char *const features[] = {"memacct", "context-share"};

/* Return: exit code */
static int check_feature(const struct call *call, const char *name)
{
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (!strcmp(name, features[i]))
			return 0;
	return mps_refuse(call, "there is no feature %s", name);
}

int mps3_feature_describe(const struct call *call)
{
	struct words words;
	struct table table = {COLUMNS(feature_columns), NULL};
	int code = mps3_take(call, KEY_BIT(FORMAT), 0, 1, &words);

	code = code || !words.count ? code : check_feature(call, words.names[0]);
	if (code)
		return code;
	table.rows = json_array();
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (!words.count || !strcmp(words.names[0], features[i]))
			json_array_append_new(table.rows,
				json_pack("[ssss]", features[i], "disabled (default)", features[i], "-"));
	return mps3_print(call, &table, words.values[KEY_FORMAT]);
}

int mps3_feature_disable(const struct call *call)
{
	return check_feature(call, call->arguments[0]);
}

int mps3_feature_refuse(const struct call *call)
{
	return mps_refuse(call,
		"it is not here: keys memory_limit and memory_guarantee of the configuration count programs' "
		"memory, frmpsctl events tells of it, and the programs of a user always share contexts");
}
