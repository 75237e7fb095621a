// frmpsctl: the operator's program. Asks the service over its socket and prints what it says, as a table for
// people or as JSON for programs.

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/tools/ask.h"
#include "server/version.h"

/* How long the service may take for it: longer than the daemon does. */
#define ISOLATE_SECONDS 60

/* Exit codes beside 0: 1 usage, or it was refused or could not be done; 69 the service is not there. */
#define EXIT_UNAVAILABLE 69

struct options {
	bool json;
	const char *socket;
};

static void print_usage(FILE *out)
{
	fputs("usage: frmpsctl [--socket PATH] COMMAND\n"
	      "\n"
	      "  status [--json]   what the service does: users, executors, programs, counters\n"
	      "  isolate SESSION   lets a running program go on in an executor of its own\n"
	      "  recovery SESSION fail|replay\n"
	      "                    what becomes of a program's commands in doubt from now on\n"
	      "  quarantine [--json]\n"
	      "                    programs that have faulted, and which are kept alone\n"
	      "  quarantine lift NUMBER\n"
	      "                    the faults of one of them are forgotten\n"
	      "  ping              exit code 0 if the service answers\n"
	      "\n"
	      "  --socket PATH     socket of the service (default: $FRMPS_SOCKET, /run/frmps/frmps.sock,\n"
	      "                    $XDG_RUNTIME_DIR/frmps.sock)\n"
	      "  --version, --help\n"
	      "\n"
	      "Exit code: 0; 1 wrong usage, or the service refuses or cannot do it; 69 no service.\n",
		out);
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "-";
}

static long long number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static void print_bytes(char *text, size_t size, long long bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	unsigned unit = 0;

	for (; value >= 1024 && unit < 4; unit++)
		value /= 1024;
	snprintf(text, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

static void print_clients(const json_t *clients)
{
	char memory[32], host[32];
	size_t index;
	json_t *one;

	if (!json_array_size(clients)) {
		puts("  no programs");
		return;
	}
	printf("  %8s  %8s  %-8s  %10s  %10s  %12s  %-8s  %5s  %s\n", "SESSION", "PID", "STATE", "MEMORY",
		"PINNED", "COMMANDS", "RECOVERY", "MOVED", "PROGRAM");
	json_array_foreach (clients, index, one) {
		const json_t *error = json_object_get(one, "error");

		print_bytes(memory, sizeof(memory), number_of(one, "memory_bytes"));
		print_bytes(host, sizeof(host), number_of(one, "host_bytes"));
		printf("  %8lld  %8lld  %-8s  %10s  %10s  %12lld  %-8s  %5lld  %s\n",
			number_of(one, "session"), number_of(one, "pid"), text_of(one, "state"), memory, host,
			number_of(one, "commands"), text_of(one, "recovery"), number_of(one, "promotions"),
			text_of(one, "program"));
		if (json_is_string(json_object_get(one, "probation")))
			printf("            on probation: %s\n", text_of(one, "probation"));
		if (error)
			printf("            error %lld: %s\n", number_of(error, "code"),
				text_of(error, "reason"));
	}
}

static void print_domain(const json_t *domain)
{
	const json_t *uid = json_object_get(domain, "uid");
	char bytes[32];
	size_t index;
	json_t *one;

	if (json_is_integer(uid))
		printf("\nuser %lld", (long long)json_integer_value(uid));
	else
		printf("\nno user yet");
	printf(" (%s, generation %lld)\n", text_of(domain, "state"), number_of(domain, "generation"));
	if (json_is_string(json_object_get(domain, "alone")))
		printf("  for one program alone: %s\n", text_of(domain, "alone"));
	if (json_is_string(json_object_get(domain, "verdict")))
		printf("  latest verdict: %s\n", text_of(domain, "verdict"));
	if (number_of(domain, "unpinning_bytes")) {
		print_bytes(bytes, sizeof(bytes), number_of(domain, "unpinning_bytes"));
		printf("  %s of freed host memory stay pinned until nothing runs\n", bytes);
	}
	json_array_foreach (json_object_get(domain, "executors"), index, one)
		printf("  executor %-8lld %-8s %s\n", number_of(one, "pid"), text_of(one, "role"),
			text_of(one, "state"));
	print_clients(json_object_get(domain, "clients"));
}

static void print_status(const json_t *root)
{
	const json_t *device = json_object_get(root, "device"), *keeper = json_object_get(root, "keeper");
	const char *key;
	char memory[32];
	size_t index;
	json_t *one;

	print_bytes(memory, sizeof(memory), number_of(device, "total_bytes"));
	printf("frmps %s, %s backend%s, %s (%s), %s, up %lld s\n", text_of(root, "version"),
		text_of(root, "backend"),
		strcmp(text_of(root, "backend"), "host") ? "" : " (no GPU: kernels run on the processor)",
		text_of(device, "name"), memory,
		json_is_true(json_object_get(root, "ready")) ? "ready" : "starting",
		number_of(root, "uptime_seconds"));
	printf("daemon %lld, keeper %lld (%s), socket %s\n", number_of(root, "pid"), number_of(keeper, "pid"),
		text_of(keeper, "state"), text_of(root, "socket"));
	if (number_of(keeper, "overdue_seconds"))
		printf("the keeper has not answered for %lld s: who asks for device memory waits\n",
			number_of(keeper, "overdue_seconds"));
	if (!strcmp(text_of(device, "state"), "failed"))
		printf("%s\nall programs get code %lld until the service is restarted\n",
			text_of(device, "reason"), number_of(device, "code"));
	json_array_foreach (json_object_get(root, "domains"), index, one)
		print_domain(one);
	puts("");
	json_object_foreach (json_object_get(root, "counters"), key, one)
		printf("%-20s %lld\n", key, (long long)json_integer_value(one));
}

/* What became of a question that was not answered with success. Return: exit code. */
static int fail(int error, const char *text)
{
	fprintf(stderr, "frmpsctl: %s\n", text);
	return error == ASK_E_REFUSED ? 1 : EXIT_UNAVAILABLE;
}

static int show(const char *path, const char *command, bool as_json, void (*print)(const json_t *root))
{
	char text[400], *answer;
	json_error_t error;
	json_t *root;
	int r = ask(path, command, &answer, text, sizeof(text));

	if (r)
		return fail(r, text);
	root = json_loads(answer, 0, &error);
	free(answer);
	if (!root) {
		fprintf(stderr, "frmpsctl: the answer cannot be read: %s\n", error.text);
		return 1;
	}
	if (as_json) {
		json_dumpf(root, stdout, JSON_INDENT(2));
		puts("");
	} else {
		print(root);
	}
	json_decref(root);
	return ferror(stdout) || fflush(stdout) ? 1 : 0;
}

static void print_quarantine(const json_t *root)
{
	size_t index;
	json_t *one;

	printf("%8s  %8s  %6s  %-12s  %9s  %s\n", "NUMBER", "UID", "FAULTS", "STATE", "EXPIRES", "PROGRAM");
	json_array_foreach (json_object_get(root, "programs"), index, one)
		printf("%8lld  %8lld  %6lld  %-12s  %7llds  %s\n", number_of(one, "number"),
			number_of(one, "uid"), number_of(one, "faults"),
			json_is_true(json_object_get(one, "quarantined")) ? "quarantined" : "shares",
			number_of(one, "expires_seconds"), text_of(one, "program"));
}

static int lift(const char *path, const char *number)
{
	const char *arguments[] = {"lift", number};
	const struct wire_names names = {arguments, 2};
	char text[400];
	int r = ask_with(path, "quarantine", &names, ASK_SECONDS, NULL, text, sizeof(text));

	return r ? fail(r, text) : 0;
}

static int set_recovery(const char *path, const char *session, const char *policy)
{
	const char *arguments[] = {session, policy};
	const struct wire_names names = {arguments, 2};
	char text[400];
	int r = ask_with(path, "recovery", &names, ASK_SECONDS, NULL, text, sizeof(text));

	return r ? fail(r, text) : 0;
}

static int isolate(const char *path, const char *session)
{
	const struct wire_names names = {&session, 1};
	char text[400], *answer = NULL;
	json_t *root;
	bool moved;
	int r = ask_with(path, "isolate", &names, ISOLATE_SECONDS, &answer, text, sizeof(text));

	if (r)
		return fail(r, text);
	root = json_loads(answer, 0, NULL);
	free(answer);
	moved = json_is_true(json_object_get(root, "moved"));
	if (!moved)
		fprintf(stderr, "frmpsctl: session %s stays with the others: %s\n", session,
			text_of(root, "reason"));
	json_decref(root);
	return moved ? 0 : 1;
}

static int ping(const char *path)
{
	char text[400];
	int r = ask(path, "ping", NULL, text, sizeof(text));

	return r ? fail(r, text) : 0;
}

/* Return: 0 to go on, or the exit code + 1. */
static int parse(int count, char **arguments, struct options *options)
{
	static const struct option known[] = {{"json", no_argument, NULL, 'j'},
		{"socket", required_argument, NULL, 's'}, {"version", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'}, {0}};
	int option;

	while ((option = getopt_long(count, arguments, "", known, NULL)) >= 0) {
		switch (option) {
		case 'j':
			options->json = true;
			break;
		case 's':
			options->socket = optarg;
			break;
		case 'v':
			puts("frmpsctl " SERVER_VERSION);
			return 1;
		case 'h':
			print_usage(stdout);
			return 1;
		default:
			print_usage(stderr);
			return 2;
		}
	}
	return 0;
}

int main(int count, char **arguments)
{
	struct options options = {0};
	int r = parse(count, arguments, &options);
	char path[512];

	if (r)
		return r - 1;
	ask_socket_path(options.socket, path, sizeof(path));
	if (optind + 1 == count && strcmp(arguments[optind], "status") == 0)
		return show(path, "status", options.json, print_status);
	if (optind + 1 == count && strcmp(arguments[optind], "quarantine") == 0)
		return show(path, "quarantine", options.json, print_quarantine);
	if (optind + 3 == count && strcmp(arguments[optind], "quarantine") == 0 &&
		strcmp(arguments[optind + 1], "lift") == 0)
		return lift(path, arguments[optind + 2]);
	if (optind + 1 == count && strcmp(arguments[optind], "ping") == 0)
		return ping(path);
	if (optind + 3 == count && strcmp(arguments[optind], "recovery") == 0)
		return set_recovery(path, arguments[optind + 1], arguments[optind + 2]);
	if (optind + 2 == count && strcmp(arguments[optind], "isolate") == 0)
		return isolate(path, arguments[optind + 1]);
	print_usage(stderr);
	return 1;
}
