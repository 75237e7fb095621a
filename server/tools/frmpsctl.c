// frmpsctl: the operator's program. Asks the service over its socket and prints the answer, as a
// table for people or as JSON for programs.

#include <dirent.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "server/tools/ask.h"
#include "server/tools/cdi.h"
#include "server/tools/command.h"
#include "server/tools/doctor.h"
#include "server/tools/events.h"
#include "server/tools/field.h"
#include "server/tools/manual.h"
#include "server/tools/mps.h"
#include "server/tools/restore.h"
#include "server/tools/save.h"
#include "server/tools/shim.h"
#include "server/tools/top.h"
#include "server/version.h"

/* Time limit for isolating a program: longer than the daemon's. */
#define ISOLATE_SECONDS 60
#define SWAP_SECONDS	120
/* The same for all programs. */
#define DRAIN_SECONDS 900
/* A user database on another machine may be slow. */
#define RELOAD_SECONDS 60

struct options {
	bool json, follow, now, end, help;
	const char *socket, *device, *since;
};

static void print_time(long long time_ms)
{
	time_t seconds = (time_t)(time_ms / 1000);
	struct tm parts;
	char text[32];

	localtime_r(&seconds, &parts);
	strftime(text, sizeof(text), "%F %T", &parts);
	printf("%s", text);
}

static void print_set(const json_t *numbers)
{
	size_t index;
	json_t *one;

	if (!json_array_size(numbers))
		return;
	printf("            it shares device memory, and is suspended together with session");
	json_array_foreach (numbers, index, one)
		printf("%s %lld", index ? "," : "", (long long)json_integer_value(one));
	puts("");
}

static void print_clients(const json_t *clients)
{
	size_t index;
	json_t *one;

	if (!json_array_size(clients)) {
		puts("  no programs");
		return;
	}
	printf("  %8s %8s %-9s %7s %7s %7s %7s %7s %6s %12s %-8s %5s  %s\n", "SESSION", "PID", "STATE",
		"MEMORY", "LIMIT", "PINNED", "LIMIT", "CLASS", "WEIGHT", "COMMANDS", "RECOVERY", "MOVED",
		"PROGRAM");
	json_array_foreach (clients, index, one) {
		const json_t *error = json_object_get(one, "error");

		printf("  %8lld %8lld %-9s %7s %7s %7s %7s %7s %6lld %12lld %-8s %5lld  %s\n",
			field_number(one, "session"), field_number(one, "pid"), field_text(one, "state", "-"),
			FIELD_BYTES(one, "memory_bytes"), FIELD_LIMIT(one, "memory_limit"),
			FIELD_BYTES(one, "host_bytes"), FIELD_LIMIT(one, "pinned_limit"),
			field_text(one, "class", "-"), field_number(one, "weight"),
			field_number(one, "commands"), field_text(one, "recovery", "-"),
			field_number(one, "promotions"), field_text(one, "program", "-"));
		if (field_number(one, "swapped_bytes"))
			printf("            %s of device memory are in %s\n",
				FIELD_BYTES(one, "swapped_bytes"),
				field_number(one, "swap_directory_bytes") ? "swap_directory" : "host memory");
		print_set(json_object_get(one, "suspended_with"));
		if (field_number(one, "sm_percent") && field_number(one, "sm_percent") < 100)
			printf("            %lld multiprocessors are granted, %lld %% is the most that it "
			       "may use\n",
				field_number(one, "multiprocessors"), field_number(one, "sm_percent"));
		if (json_is_string(json_object_get(one, "sm_partition")))
			printf("            %lld multiprocessors are granted, of partition %s\n",
				field_number(one, "multiprocessors"), field_text(one, "sm_partition", "-"));
		if (error)
			printf("            error %lld: %s\n", field_number(error, "code"),
				field_text(error, "reason", "-"));
	}
}

static void print_domain(const json_t *domain)
{
	const json_t *uid = json_object_get(domain, "uid");
	size_t index;
	json_t *one;

	if (json_is_integer(uid))
		printf("\nuser %lld", (long long)json_integer_value(uid));
	else
		printf("\nno user yet");
	printf(" (%s, generation %lld)\n", field_text(domain, "state", "-"),
		field_number(domain, "generation"));
	if (json_is_string(json_object_get(domain, "alone")))
		printf("  for one program alone: %s\n", field_text(domain, "alone", "-"));
	if (json_is_string(json_object_get(domain, "verdict"))) {
		printf("  latest verdict (");
		print_time(field_number(domain, "verdict_ms"));
		printf("): %s\n", field_text(domain, "verdict", "-"));
	}
	if (field_number(domain, "unpinning_bytes"))
		printf("  %s of freed host memory stay pinned until nothing runs\n",
			FIELD_BYTES(domain, "unpinning_bytes"));
	json_array_foreach (json_object_get(domain, "executors"), index, one)
		printf("  executor %-8lld %-8s %s%s\n", field_number(one, "pid"),
			field_text(one, "role", "-"), field_text(one, "state", "-"),
			json_is_false(json_object_get(one, "contains")) &&
					strcmp(field_text(one, "state", "-"), "starting")
				? ", faults are not contained"
				: "");
	print_clients(json_object_get(domain, "clients"));
}

static void print_proof(const json_t *proof)
{
	if (json_is_true(json_object_get(proof, "proved")))
		printf("faults of kernels: contained by the service (proved in %lld ms)\n",
			field_number(proof, "ms"));
	else if (json_is_object(proof))
		printf("faults of kernels: the driver's fence, because the trial failed: %s\n",
			field_text(proof, "reason", "-"));
}

static void print_run_as(const json_t *run_as)
{
	const char *reason = field_text(run_as, "reason", NULL);

	if (reason)
		printf("executors: run as root, not as their programs' users, because: %s\n", reason);
}

static void print_swap(const json_t *swap)
{
	size_t index;
	json_t *one;

	if (field_number(swap, "stash_bytes"))
		printf("a copy of programs that are being saved has %s of the device: who needs it gets it\n",
			FIELD_BYTES(swap, "stash_bytes"));
	if (!field_number(swap, "bytes") && !field_number(swap, "directory_bytes"))
		return;
	printf("suspended programs have %s of %s in host memory, %s in swap_directory\n",
		FIELD_BYTES(swap, "bytes"), FIELD_BYTES(swap, "most_bytes"),
		FIELD_BYTES(swap, "directory_bytes"));
	json_array_foreach (json_object_get(swap, "users"), index, one)
		printf("  those of user %lld: %s of %s, and %s\n", field_number(one, "uid"),
			FIELD_BYTES(one, "bytes"), FIELD_BYTES(one, "most_bytes"),
			FIELD_BYTES(one, "directory_bytes"));
}

static void print_left_out(const json_t *left_out)
{
	size_t index;
	json_t *one;

	json_array_foreach (left_out, index, one)
		printf("GPU %lld (%s) is left out: %s. To do: %s; then restart the service\n",
			field_number(one, "gpu"), field_text(one, "uuid", "no UUID"),
			field_text(one, "reason", "-"), field_text(one, "remedy", "-"));
}

static void print_status(const json_t *root)
{
	const json_t *device = json_object_get(root, "device"), *keeper = json_object_get(root, "keeper");
	const char *key;
	size_t index;
	json_t *one;

	printf("frmps %s, %s backend, %s (%s), %s, up %lld s\n", field_text(root, "version", "-"),
		field_text(root, "backend", "-"), field_text(device, "name", "-"),
		FIELD_BYTES(device, "total_bytes"),
		json_is_true(json_object_get(root, "ready")) ? "ready" : "starting",
		field_number(root, "uptime_seconds"));
	printf("daemon %lld, keeper %lld (%s), socket %s\n", field_number(root, "pid"),
		field_number(keeper, "pid"), field_text(keeper, "state", "-"),
		field_text(root, "socket", "-"));
	if (field_number(keeper, "overdue_seconds"))
		printf("the keeper has not answered for %lld s: requests for device memory wait\n",
			field_number(keeper, "overdue_seconds"));
	if (json_is_integer(json_object_get(root, "stop_ms")))
		printf("the service stops: it waits for these programs for %lld s more; frmpsctl terminate "
		       "ends one\n",
			field_number(root, "stop_ms") / 1000);
	print_swap(json_object_get(root, "swap"));
	/* Of several devices once. */
	if (!field_number(device, "number"))
		print_left_out(json_object_get(root, "left_out"));
	print_proof(json_object_get(root, "proof"));
	print_run_as(json_object_get(root, "run_as"));
	if (!strcmp(field_text(device, "state", "-"), "failed"))
		printf("%s\nall programs get code %lld until the service is restarted\n",
			field_text(device, "reason", "-"), field_number(device, "code"));
	if (!strcmp(field_text(device, "state", "-"), "drained"))
		puts("the device is drained: programs wait, and no new one is served, until frmpsctl refill");
	if (!strcmp(field_text(device, "state", "-"), "draining"))
		puts("the device is being drained: no new program is served until frmpsctl refill");
	json_array_foreach (json_object_get(root, "domains"), index, one)
		print_domain(one);
	puts("");
	json_object_foreach (json_object_get(root, "counters"), key, one)
		printf("%-20s %lld\n", key, (long long)json_integer_value(one));
	json_object_foreach (json_object_get(root, "driver_loads"), key, one)
		printf("%lld modules were loaded by the driver, which waits for kernels that run: %s\n",
			(long long)json_integer_value(one), key);
}

static void print_faults(const json_t *root)
{
	const json_t *faults = json_object_get(root, "faults"), *uid;
	size_t index;
	json_t *one;

	if (!json_array_size(faults))
		puts("no faults since the service started");
	json_array_foreach (faults, index, one) {
		uid = json_object_get(one, "uid");
		print_time(field_number(one, "time_ms"));
		if (json_is_integer(uid))
			printf("  user %lld", (long long)json_integer_value(uid));
		printf("  %s\n", field_text(one, "verdict", "-"));
	}
}

static void print_quarantine(const json_t *root)
{
	size_t index;
	json_t *one;

	printf("%8s  %8s  %6s  %-12s  %9s  %s\n", "NUMBER", "UID", "FAULTS", "STATE", "EXPIRES", "PROGRAM");
	json_array_foreach (json_object_get(root, "programs"), index, one)
		printf("%8lld  %8lld  %6lld  %-12s  %7llds  %s\n", field_number(one, "number"),
			field_number(one, "uid"), field_number(one, "faults"),
			json_is_true(json_object_get(one, "quarantined")) ? "quarantined" : "shares",
			field_number(one, "expires_seconds"), field_text(one, "program", "-"));
}

/*
 * Commands. Return: exit code
 */

static const struct wire_names no_arguments;

/* @seconds: how long the service may take */
static int show(
	const struct call *call, const char *command, unsigned seconds, void (*print)(const json_t *root))
{
	int code;
	json_t *root = call_ask(call, command, &no_arguments, seconds, &code);

	if (!root)
		return code;
	if (call->json)
		return command_print(root);
	print(root);
	json_decref(root);
	return manual_flush(stdout);
}

static int show_status(const struct call *call)
{
	return show(call, "status", ASK_SECONDS, print_status);
}

static int show_faults(const struct call *call)
{
	return show(call, "faults", ASK_SECONDS, print_faults);
}

static int show_events(const struct call *call)
{
	return events_show(call, stdout);
}

static int show_quarantine(const struct call *call)
{
	return show(call, "quarantine", ASK_SECONDS, print_quarantine);
}

/* Sends a command to the service, and expects no output. @seconds: how long the service may take */
static int send(const struct call *call, const char *command, const char *const *arguments, unsigned count,
	unsigned seconds)
{
	const struct wire_names names = {arguments, count};
	char text[2400];
	int r = ask_with(call->path, command, &names, seconds, NULL, text, sizeof(text));

	return r ? call_fail(call, r, text) : 0;
}

static int send_on(const struct call *call, unsigned seconds)
{
	return send(call, call->name, (const char *const *)call->arguments, (unsigned)call->count, seconds);
}

/* Commands that the service has under the same name, with the same arguments. */
static int order(const struct call *call)
{
	return send_on(call, ASK_SECONDS);
}

static int order_resume(const struct call *call)
{
	return send_on(call, SWAP_SECONDS);
}

static int order_device(const struct call *call)
{
	return send_on(call, DRAIN_SECONDS);
}

static int lift(const struct call *call)
{
	return send(call, "quarantine", (const char *[]){"lift", call->arguments[0]}, 2, ASK_SECONDS);
}

static int suspend(const struct call *call)
{
	return send(call, "suspend", (const char *[]){call->arguments[0], "now"}, call->now ? 2 : 1,
		SWAP_SECONDS);
}

static int isolate(const struct call *call)
{
	const char *session = call->arguments[0];
	const struct wire_names names = {&session, 1};
	int code;
	json_t *root = call_ask(call, "isolate", &names, ISOLATE_SECONDS, &code);
	bool moved;

	if (!root)
		return code;
	moved = json_is_true(json_object_get(root, "moved"));
	if (!moved)
		fprintf(stderr, "frmpsctl: session %s stays where it is: %s\n", session,
			field_text(root, "reason", "-"));
	json_decref(root);
	return moved ? 0 : 1;
}

static void print_reload(const json_t *root)
{
	if (*field_text(root, "restart", ""))
		printf("from the next start of the service: %s\n", field_text(root, "restart", ""));
}

static int reload(const struct call *call)
{
	return show(call, "reload", RELOAD_SECONDS, print_reload);
}

static int examine(const struct call *call)
{
	char *server = shim_find_server();
	struct doctor doctor = {
		.root = "", .socket = call->path, .server = server, .json = call->json, .out = stdout};
	int code = doctor_run(&doctor);

	free(server);
	return code;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct termios terminal; /* at the start */

static void restore_terminal(void)
{
	tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
}

static void on_end(int number)
{
	restore_terminal();
	signal(number, SIG_DFL);
	raise(number);
}

/* Keys arrive singly, and are not shown. Return: false if that is unsupported */
static bool read_keys(void)
{
	struct termios now;

	if (tcgetattr(STDIN_FILENO, &terminal) < 0)
		return false;
	now = terminal;
	now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	if (tcsetattr(STDIN_FILENO, TCSANOW, &now) < 0)
		return false;
	atexit(restore_terminal);
	signal(SIGINT, on_end);
	signal(SIGTERM, on_end);
	return true;
}

/* Waits a second for a key. @keys: true if keys can be read. Return: true for q */
static bool wait_or_leave(bool keys)
{
	struct pollfd wait = {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN};
	char key;

	return poll(&wait, 1, 1000) > 0 && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q');
}

/* On a terminal until the user presses q, which restores the terminal; elsewhere once. */
static int show_top(const struct call *call)
{
	const bool live = isatty(STDOUT_FILENO) && !call->json && !call->devices;
	struct winsize size = {0};
	json_t *before = NULL, *now;
	uint64_t before_ns = 0, ns;
	const bool keys = live && isatty(STDIN_FILENO) && read_keys();
	int code;

	while ((now = call_ask(call, "status", &no_arguments, ASK_SECONDS, &code))) {
		ns = now_ns();
		if (live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
			size.ws_row = 0;
		if (live)
			fputs(before ? "\033[H" : "\033[H\033[2J", stdout);
		if (call->json && before)
			command_print(top_json(before, now, ns - before_ns));
		else if (live || before)
			top_print(before, now, ns - before_ns, size.ws_row, live ? "\033[K\n" : "\n", stdout);
		if (live)
			fputs("\033[J", stdout);
		code = manual_flush(stdout);
		json_decref(before);
		if (code || (!live && before))
			break;
		before = now;
		before_ns = ns;
		now = NULL;
		if (wait_or_leave(keys))
			break;
	}
	json_decref(now ? now : before);
	return code;
}

/* True if the socket's folder contains nothing else: a container gets all of it. */
static bool is_own_folder(const char *socket)
{
	const char *name = strrchr(socket, '/');
	char *path = name ? strndup(socket, (size_t)(name - socket)) : NULL;
	DIR *folder = path ? opendir(path) : NULL;
	const struct dirent *entry;
	bool own = true;

	while (folder && (entry = readdir(folder)))
		own &= *entry->d_name == '.' || !strncmp(entry->d_name, name + 1, strlen(name + 1));
	if (folder)
		closedir(folder);
	free(path);
	return own;
}

static int describe_container(const struct call *call)
{
	const char *name = call->count ? call->arguments[0] : "0";
	const char *behind = call->count > 1 ? call->arguments[1] : "";
	char *library = shim_directory(), *folder = library ? realpath(library, NULL) : NULL;
	const bool own = is_own_folder(call->path), named = cdi_is_name(name);
	json_t *json = folder && own && named ? cdi_make(name, call->path, folder, behind) : NULL;
	int code =
		json && !json_dumpf(json, stdout, JSON_INDENT(2)) && puts("") >= 0 && !fflush(stdout) ? 0 : 1;

	if (!named)
		code = manual_wrong(&manual_ctl,
			"cdi: '%s' is no name: letters and digits, between them also . _ - and :", name);
	else if (!folder)
		fputs("frmpsctl: the library is not found (FRMPS_SHIM_DIR names its folder)\n", stderr);
	else if (!own)
		fprintf(stderr,
			"frmpsctl: the folder of %s has other files, which a container would get as well: "
			"give the "
			"socket a folder of its own (key socket)\n",
			call->path);
	else if (!json)
		fprintf(stderr,
			"frmpsctl: %s and %s are no absolute paths in folders of their own, or too long\n",
			call->path, folder);
	json_decref(json);
	free(folder);
	free(library);
	return code;
}

static const struct command rows[] = {
#define TEXT(paragraph)
#define COMMAND(name, arguments, least, most, function, help) {name, function},
#define VERB(name, arguments, least, most, function, help)    {name, function},
#define OPTION(letter, name, argument, help)
#define VARIABLE(name, values, help)
#define EXAMPLE(command, help)
#define EXIT(code, help)
#include "server/tools/frmpsctl.def"
};

static const struct commands commands = {&manual_ctl, rows, sizeof(rows) / sizeof(rows[0])};

/*
 * Options
 */

/* @stops: at the first word that is no option. Return: 0 to go on, or the exit code + 1. */
static int parse(int count, char **arguments, bool stops, struct options *options)
{
	int option;

	/* The C library begins anew. */
	optind = 0;
	while ((option = manual_option(&manual_ctl, count, arguments, stops)) >= 0) {
		switch (option) {
		case 'j':
			options->json = true;
			break;
		case 'f':
			options->follow = true;
			break;
		case 'n':
			options->now = true;
			break;
		case 'e':
			options->end = true;
			break;
		case 'i':
			options->since = optarg;
			break;
		case 's':
			options->socket = optarg;
			break;
		case 'd':
			options->device = optarg;
			break;
		case 'v':
			puts("frmpsctl " SERVER_VERSION);
			return manual_flush(stdout) + 1;
		case 'h':
			options->help = true;
			break;
		default:
			return manual_wrong(&manual_ctl, NULL) + 1;
		}
	}
	return 0;
}

/* Options may stand before and after a command, but all words after a verb of stock MPS belong to
 * the verb.
 * @ret_words: words that are no options. Return: 0 to go on, or the exit code + 1. */
static int parse_all(int count, char **arguments, struct options *options, int *ret_count, char ***ret_words)
{
	int r = parse(count, arguments, true, options), first = optind;

	*ret_count = count - first;
	*ret_words = arguments + first;
	if (r || command_takes_all(&commands, *ret_count, *ret_words))
		return r;
	/* In place of the program's name, which messages begin with. */
	arguments[first - 1] = arguments[0];
	r = parse(count - first + 1, arguments + first - 1, false, options);
	*ret_count -= optind - 1;
	*ret_words += optind - 1;
	return r;
}

/* @before: options before the lines of standard input, of which this is one; NULL: commands may
 * come from standard input. Return: exit code */
static int run(int count, char **arguments, const struct options *before);

static int run_line(void *context, int count, char **arguments)
{
	return run(count, arguments, context);
}

static int run(int count, char **arguments, const struct options *before)
{
	struct options options = before ? *before : (struct options){0};
	char path[PLACE_BYTES], text[700], **words;
	struct call call = {.program = "frmpsctl", .path = path};
	int r = parse_all(count, arguments, &options, &count, &words);

	if (r)
		return r - 1;
	if (options.help)
		return command_help(&commands, count, words);
	r = ask_find(options.socket, path, text, sizeof(text));
	if (r)
		return call_fail(&call, r, text);
	call.json = options.json;
	call.follow = options.follow;
	call.now = options.now;
	call.end = options.end;
	call.since = options.since;
	call.device = options.device;
	if (!count && !before && !isatty(STDIN_FILENO)) {
		options.socket = path;
		r = command_read(stdin, "frmpsctl", run_line, &options);
		if (r >= 0)
			return r;
	}
	return command_run(&commands, &call, count, words);
}

int main(int count, char **arguments)
{
	return run(count, arguments, NULL);
}
