// Verbs of stock MPS. See mps.h. Lists come from the service's status (server/control/status.c).

#include "server/tools/mps.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "server/tools/field.h"
#include "server/tools/manual.h"
#include "server/tools/mps_inside.h"

/* "GPU-cb1213a3-d6a4-be7f" of a whole UUID. */
#define PARTIAL_UUID 22

int mps_refuse(const struct call *call, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: %s: ", call->program, call->name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	return 1;
}

json_t *mps_status(const struct call *call, int *ret_code)
{
	return call_ask(call, "status", &(struct wire_names){0}, ASK_SECONDS, ret_code);
}

const char *mps_uuid(const json_t *root)
{
	return field_text(json_object_get(root, "device"), "uuid", "-");
}

/*
 * Servers and clients
 */

/* Return: the process of the executor that serves a domain; 0: there is none, or nobody's programs
 * yet */
long long mps_server_of(const json_t *domain)
{
	size_t index;
	json_t *one;

	if (!json_is_integer(json_object_get(domain, "uid")))
		return 0;
	json_array_foreach (json_object_get(domain, "executors"), index, one)
		if (!strcmp(field_text(one, "role", ""), "active"))
			return field_number(one, "pid");
	return 0;
}

bool mps_is_number(const char *text, long long number)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%lld", number);
	return !strcmp(text, digits);
}

/* Return: the domain of a server; NULL after an error line if there is none */
static const json_t *find_server(const struct call *call, const json_t *root, const char *server)
{
	size_t index;
	json_t *domain;

	json_array_foreach (json_object_get(root, "domains"), index, domain) {
		long long pid = mps_server_of(domain);

		if (pid && mps_is_number(server, pid))
			return domain;
	}
	mps_refuse(call, "there is no server %s (get_server_list lists them)", server);
	return NULL;
}

/* A program whose process has ended is none any more, though its work may go on for a while. */
bool mps_is_client(const json_t *client)
{
	return strcmp(field_text(client, "state", ""), "closing") != 0;
}

/* The number of a process's PID namespace. @size: 24 at least */
void mps_describe_namespace(long long pid, char *text, size_t size)
{
	char path[48], target[64];
	unsigned long long number;
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/%lld/ns/pid", pid);
	length = readlink(path, target, sizeof(target) - 1);
	target[length > 0 ? length : 0] = '\0';
	snprintf(text, size, "-");
	if (sscanf(target, "pid:[%llu]", &number) == 1)
		snprintf(text, size, "%llu", number);
}

static json_t *client_json(const json_t *root, long long server, const json_t *client)
{
	long long pid = field_number(client, "pid");
	char namespace[32];

	mps_describe_namespace(pid, namespace, sizeof(namespace));
	return json_pack("{sI sI sI ss ss ss ss}", "pid", (json_int_t)pid, "session",
		(json_int_t)field_number(client, "session"), "server", (json_int_t)server, "device",
		mps_uuid(root), "namespace", namespace, "program", field_text(client, "program", "-"),
		"executable", field_text(client, "executable", field_text(client, "program", "-")));
}

/* The rows about each client, without a server as well. @only: of this domain; NULL: of all */
static json_t *clients_json(const json_t *root, const json_t *only)
{
	json_t *list = json_array(), *domain, *client;
	size_t i, j;

	json_array_foreach (json_object_get(root, "domains"), i, domain) {
		if (only && domain != only)
			continue;
		json_array_foreach (json_object_get(domain, "clients"), j, client)
			if (mps_is_client(client))
				json_array_append_new(list, client_json(root, mps_server_of(domain), client));
	}
	return list;
}

typedef void client_fn(const json_t *client);

/* Return: exit code */
static int print_clients(const struct call *call, json_t *list, const char *headline, client_fn *print)
{
	json_t *client;
	size_t index;

	if (call->json)
		return command_print(json_pack("{so}", "clients", list));
	if (json_array_size(list))
		fputs(headline, stdout);
	json_array_foreach (list, index, client)
		print(client);
	json_decref(list);
	return manual_flush(stdout);
}

/* Bytes of the line above a list of clients. */
#define HEADLINE 200u

typedef void headline_fn(const json_t *root, char text[HEADLINE]);

static void ps_headline(const json_t *root, char text[HEADLINE]);

static bool ps_has_headline; /* the command that runs has printed it */

/* Prints a row for each client. @server: of this server; NULL: of all; @headline: printed above any
 * rows; NULL: nothing. Return: exit code */
static int list_clients(const struct call *call, const char *server, headline_fn *headline, client_fn *print)
{
	const json_t *only = NULL;
	char above[HEADLINE] = "";
	int code;
	json_t *root = mps_status(call, &code), *clients;

	if (!root)
		return code;
	if (server)
		only = find_server(call, root, server);
	if (headline)
		headline(root, above);
	/* One table for all devices. */
	if (!call->position)
		ps_has_headline = false;
	if (headline == ps_headline && ps_has_headline)
		above[0] = '\0';
	clients = clients_json(root, only);
	ps_has_headline |= json_array_size(clients) > 0;
	code = !server || only ? print_clients(call, clients, above, print) : 1;
	if (server && !only)
		json_decref(clients);
	json_decref(root);
	return code;
}

/*
 * Verbs
 */

int mps_server_list(const struct call *call)
{
	int code;
	json_t *root = mps_status(call, &code), *list = json_array(), *domain;
	size_t index;

	if (!root) {
		json_decref(list);
		return code;
	}
	json_array_foreach (json_object_get(root, "domains"), index, domain) {
		if (!mps_server_of(domain))
			continue;
		if (!call->json)
			printf("%lld\n", mps_server_of(domain));
		json_array_append_new(list, json_pack("{sI sO}", "server", (json_int_t)mps_server_of(domain),
						    "uid", json_object_get(domain, "uid")));
	}
	json_decref(root);
	if (call->json)
		return command_print(json_pack("{so}", "servers", list));
	json_decref(list);
	return manual_flush(stdout);
}

/* The states of stock MPS. During a fault, new programs wait as at a start. */
const char *mps_state_of(const json_t *root, const json_t *domain)
{
	if (!strcmp(field_text(json_object_get(root, "device"), "state", ""), "failed"))
		return "FAULT";
	return strcmp(field_text(domain, "state", ""), "steady") ? "INITIALIZING" : "ACTIVE";
}

int mps_server_status(const struct call *call)
{
	int code;
	json_t *root = mps_status(call, &code);
	const json_t *domain;

	if (!root)
		return code;
	domain = find_server(call, root, call->arguments[0]);
	code = 1;
	if (domain && call->json) {
		code = command_print(json_pack("{ss}", "status", mps_state_of(root, domain)));
	} else if (domain) {
		puts(mps_state_of(root, domain));
		code = manual_flush(stdout);
	}
	json_decref(root);
	return code;
}

static void print_pid(const json_t *client)
{
	printf("%lld\n", field_number(client, "pid"));
}

int mps_client_list(const struct call *call)
{
	return list_clients(call, call->arguments[0], NULL, print_pid);
}

/* Number, bus and name. */
static void device_headline(const json_t *root, char text[HEADLINE])
{
	const json_t *device = json_object_get(root, "device");
	const char *pci = field_text(device, "pci", "0000:00:00.0"), *domain = strchr(pci, ':');

	snprintf(text, HEADLINE, "[%lld] %s, %s\n", field_number(device, "number"), domain ? domain + 1 : pci,
		field_text(device, "name", "-"));
}

/* A process and its session: here always the first. */
static void print_device_client(const json_t *client)
{
	printf("%lld.1\n", field_number(client, "pid"));
}

int mps_device_client_list(const struct call *call)
{
	return list_clients(
		call, call->count ? call->arguments[0] : NULL, device_headline, print_device_client);
}

static void print_process(const json_t *client)
{
	printf("%-9lld %-5lld %-9lld %-*.*s %-11s %s\n", field_number(client, "pid"),
		field_number(client, "session"), field_number(client, "server"), PARTIAL_UUID, PARTIAL_UUID,
		field_text(client, "device", "-"), field_text(client, "namespace", "-"),
		field_text(client, "executable", "-"));
}

static void ps_headline(const json_t *root, char text[HEADLINE])
{
	(void)root;
	snprintf(text, HEADLINE, "%-9s %-5s %-9s %-*s %-11s %s\n", "PID", "ID", "SERVER", PARTIAL_UUID,
		"DEVICE", "NAMESPACE", "COMMAND");
}

int mps_ps(const struct call *call)
{
	if (call->count && (call->count != 2 || strcmp(call->arguments[0], "-p"))) {
		mps_refuse(call, "it takes nothing, or -p and a server");
		return EX_USAGE;
	}
	return list_clients(call, call->count ? call->arguments[1] : NULL, ps_headline, print_process);
}

/* The first three numbers are written with a colon and two points there. */
void mps_describe_pci(const json_t *root, char text[MPS_PCI])
{
	unsigned domain = 0, bus = 0, number = 0;

	sscanf(field_text(json_object_get(root, "device"), "pci", ""), "%x:%x:%x", &domain, &bus, &number);
	snprintf(text, MPS_PCI, "%04x:%02x.%02x.00", domain & 0xffff, bus & 0xff, number & 0xff);
}

const char *mps_number(const json_t *root, char text[MPS_NUMBER])
{
	snprintf(text, MPS_NUMBER, "%lld", field_number(json_object_get(root, "device"), "number"));
	return text;
}

static void print_device(const json_t *root, bool csv, bool has_header)
{
	const json_t *device = json_object_get(root, "device");
	const char *format = csv ? "%s,%s,%s,%s,%s\n" : "%-14s  %-15s  %-40s  %-30s  %s\n";
	char pci[MPS_PCI], number[MPS_NUMBER];

	mps_describe_pci(root, pci);
	if (has_header)
		printf(format, "Device Ordinal", "PCI IDs", "UUID", "Name", "Attributes");
	printf(format, mps_number(root, number), pci, mps_uuid(root), field_text(device, "name", "-"), "N/A");
}

/* The devices for programs that start a server, or for those of a server. */
static void print_devices(const struct call *call, const json_t *root, const char *server, bool csv)
{
	/* One table for all devices. */
	if (!call->position)
		puts("Default");
	print_device(root, csv, !call->position);
	if (server) {
		printf("\nServer %s\n", server);
		print_device(root, csv, true);
	}
}

static json_t *devices_json(const json_t *root)
{
	const json_t *device = json_object_get(root, "device");

	return json_pack("{s[{si ss ss ss sI sI}]}", "devices", "ordinal",
		(int)field_number(device, "number"), "pci", field_text(device, "pci", "-"), "uuid",
		mps_uuid(root), "name", field_text(device, "name", "-"), "multiprocessors",
		(json_int_t)field_number(device, "multiprocessors"), "memory_bytes",
		(json_int_t)field_number(device, "total_bytes"));
}

int mps_device_query(const struct call *call)
{
	const char *server = NULL;
	bool csv = false;
	int code;
	json_t *root;

	for (int i = 0; i < call->count; i++) {
		if (!strcmp(call->arguments[i], "--csv") && !csv && !call->json)
			csv = true;
		else if (*call->arguments[i] != '-' && !server)
			server = call->arguments[i];
		else {
			mps_refuse(call, "it takes a server and --csv, and not '%s'", call->arguments[i]);
			return EX_USAGE;
		}
	}
	root = mps_status(call, &code);
	if (!root)
		return code;
	if (server && !find_server(call, root, server)) {
		code = 1;
	} else if (call->json) {
		code = command_print(devices_json(root));
	} else {
		print_devices(call, root, server, csv);
		code = manual_flush(stdout);
	}
	json_decref(root);
	return code;
}

#define PARTITION_ROW "%-12.12s  %-9s  %-6s  %-6s  %-4s  %-4s  %s\n"

/* A number as a column. @text: 24 bytes */
static const char *column(char *text, long long number)
{
	snprintf(text, 24, "%lld", number);
	return text;
}

static void print_partitions(const struct call *call, const json_t *root)
{
	const json_t *device = json_object_get(root, "device"),
		     *partitions = json_object_get(root, "partitions");
	long long granule = field_number(device, "chunk_multiprocessors"), used = 0;
	char chunks[2][24], sms[2][24];
	size_t index;
	json_t *one;

	json_array_foreach (partitions, index, one)
		used += field_number(one, "chunks");
	/* One table for all devices. */
	if (!call->position) {
		printf(PARTITION_ROW, "GPU", "Partition", "free", "used", "free", "used", "clients");
		printf(PARTITION_ROW, "", "", "chunks", "chunks", "SM", "SM", "");
	}
	printf(PARTITION_ROW, mps_uuid(root), "-", column(chunks[0], field_number(device, "free_chunks")),
		column(chunks[1], used),
		column(sms[0], field_number(device, "multiprocessors") - used * granule),
		column(sms[1], used * granule), "-");
	json_array_foreach (partitions, index, one)
		printf(PARTITION_ROW, mps_uuid(root), field_text(one, "name", "-"), "-",
			column(chunks[1], field_number(one, "chunks")), "-",
			column(sms[1], field_number(one, "multiprocessors")),
			field_number(one, "clients") ? "Yes" : "No");
}

static json_t *partitions_json(const json_t *root)
{
	const json_t *device = json_object_get(root, "device");

	return json_pack("{ss sI sI sO}", "device", mps_uuid(root), "free_chunks",
		(json_int_t)field_number(device, "free_chunks"), "chunk_multiprocessors",
		(json_int_t)field_number(device, "chunk_multiprocessors"), "partitions",
		json_object_get(root, "partitions"));
}

int mps_partitions(const struct call *call)
{
	int code;
	json_t *root = mps_status(call, &code);

	if (!root)
		return code;
	if (call->json) {
		code = command_print(partitions_json(root));
	} else {
		print_partitions(call, root);
		code = manual_flush(stdout);
	}
	json_decref(root);
	return code;
}

/* Return: the session of a server's client; 0: there is none */
static long long session_of(const json_t *domain, const char *client)
{
	size_t index;
	json_t *one;

	json_array_foreach (json_object_get(domain, "clients"), index, one)
		if (mps_is_client(one) && mps_is_number(client, field_number(one, "pid")))
			return field_number(one, "session");
	return 0;
}

int mps_terminate(const struct call *call, long long session)
{
	char number[24], text[400];
	const char *word = number;
	int r;

	snprintf(number, sizeof(number), "%lld", session);
	r = ask_with(call->path, "terminate", &(struct wire_names){&word, 1}, ASK_SECONDS, NULL, text,
		sizeof(text));
	if (r)
		return call_fail(call, r, text);
	if (call->json)
		return command_print(json_pack("{sI}", "session", (json_int_t)session));
	puts("0");
	return manual_flush(stdout);
}

int mps_terminate_client(const struct call *call)
{
	const char *server = call->arguments[0], *client = call->arguments[1];
	long long session = 0;
	int code;
	json_t *root = mps_status(call, &code);
	const json_t *domain;

	if (!root)
		return code;
	domain = find_server(call, root, server);
	/* Every process of a PID namespace that is invisible to the service has PID 0. */
	if (domain && mps_is_number(client, 0)) {
		json_decref(root);
		return mps_refuse(
			call, "several may have no PID here (terminate takes the ID that ps lists)");
	}
	if (domain)
		session = session_of(domain, client);
	json_decref(root);
	if (session)
		return mps_terminate(call, session);
	return domain ? mps_refuse(call, "server %s has no client %s (ps lists them)", server, client) : 1;
}

int mps_order(const struct call *call)
{
	const struct wire_names words = {(const char *const *)call->arguments, (unsigned)call->count};
	int code;
	json_t *root = call_ask(call, call->name, &words, ASK_SECONDS, &code);

	if (!root)
		return code;
	if (call->json)
		return command_print(root);
	if (!call->position && *field_text(root, "text", ""))
		puts(field_text(root, "text", ""));
	json_decref(root);
	return manual_flush(stdout);
}
