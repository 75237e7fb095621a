// See metrics.h. Every name that Prometheus sees is in the tables below, once. All samples of a
// name follow its help, as the format demands, so each name needs another pass over all devices,
// executors or sessions.

#include "server/tools/metrics.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/tools/field.h"

/* A number of the document. */
struct figure {
	const char *name, *type, *help, *key;
};

/* Values of these labels of Prometheus are cut off at this length. */
#define LABEL_MAX 512u
#define POD_UID	  36u /* characters */

static const struct figure driver_loads_figure = {"driver_loads_total", "counter",
	"Modules that the driver loaded, which waits for kernels that run, by why.", "reason"};
static const struct figure events_figure = {
	"events_total", "counter", "What has happened, by kind: frmpsctl events shows the latest.", "kind"};
static const struct figure session_figures[] = {
	{"session_device_memory_bytes", "gauge", "Device memory that is mapped for the program.",
		"memory_bytes"},
	{"session_swapped_memory_bytes", "gauge",
		"Device memory of the program that is away, because it is suspended.", "swapped_bytes"},
	{"session_swap_directory_bytes", "gauge",
		"Device memory of the program that is in swap_directory, because it is suspended.",
		"swap_directory_bytes"},
	{"session_pinned_memory_bytes", "gauge", "Pinned host memory that is mapped for the program.",
		"host_bytes"},
	{"session_image_bytes", "gauge", "Images of the modules that the program has loaded.", "image_bytes"},
	{"session_memory_limit_bytes", "gauge", "Most device memory that the program may have; 0: no limit.",
		"memory_limit"},
	{"session_memory_guarantee_bytes", "gauge", "Device memory that the program has for certain.",
		"memory_guarantee"},
	{"session_multiprocessors", "gauge", "Multiprocessors that the program has for certain.",
		"multiprocessors"},
	{"session_commands_total", "counter", "Commands that the program has given to the service.",
		"commands"},
	{"session_moves_total", "counter", "How often the program went on in another executor.",
		"promotions"},
	{"session_state", "gauge", "The state in which a session is; always 1.", NULL},
};

/* A number of the whole document. */
static const struct {
	struct figure figure;
	const char *part; /* object with the number; NULL: the document itself */
} service_figures[] = {
	{{"uptime_seconds", "gauge", "How long the service has run.", "uptime_seconds"}, NULL},
	{{"device_memory_bytes", "gauge", "Memory of the device.", "total_bytes"}, "device"},
	{{"swap_host_memory_bytes", "gauge",
		 "Host memory that the device memory of suspended programs takes.", "bytes"},
		"swap"},
	{{"swap_host_memory_limit_bytes", "gauge", "Most that it may take.", "most_bytes"}, "swap"},
	{{"swap_directory_bytes", "gauge", "Device memory of suspended programs that is in swap_directory.",
		 "directory_bytes"},
		"swap"},
	{{"stash_memory_bytes", "gauge",
		 "Device memory with a copy of programs that are saved, until it is in files.",
		 "stash_bytes"},
		"swap"},
	{{"keeper_overdue_seconds", "gauge",
		 "How long programs that ask for device memory have waited; 0 as a rule.", "overdue_seconds"},
		"keeper"},
};

/* Of users with some. */
static const struct figure swap_user_figures[] = {
	{"swap_user_host_memory_bytes", "gauge",
		"Host memory that the device memory of the user's suspended programs takes.", "bytes"},
	{"swap_user_host_memory_limit_bytes", "gauge", "Most that it may take (swap_host_bytes).",
		"most_bytes"},
	{"swap_user_directory_bytes", "gauge",
		"Device memory of the user's suspended programs that is in swap_directory.",
		"directory_bytes"},
};

static const struct figure partition_figures[] = {
	{"partition_multiprocessors", "gauge", "Multiprocessors of an SM partition.", "multiprocessors"},
	{"partition_sessions", "gauge", "Programs that belong to an SM partition.", "clients"},
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* The documents, and the sample that is being written. */
struct metrics {
	FILE *out;
	json_t *const *statuses; /* by device; NULL: no answer */
	unsigned count;
	unsigned labels; /* of the sample, so far */
};

static void say_kind(struct metrics *metrics, const char *name, const char *type, const char *help)
{
	fprintf(metrics->out, "# HELP frmps_%s %s\n# TYPE frmps_%s %s\n", name, help, name, type);
}

static void say_figure(struct metrics *metrics, const struct figure *figure)
{
	say_kind(metrics, figure->name, figure->type, figure->help);
}

/* name="text", with the format's special characters escaped. Texts are the programs' own. */
static void label(struct metrics *metrics, const char *name, const char *text)
{
	fprintf(metrics->out, "%s%s=\"", metrics->labels++ ? "," : "{", name);
	for (unsigned i = 0; text[i] && i < LABEL_MAX; i++) {
		if (text[i] == '\n')
			fputs("\\n", metrics->out);
		else if (text[i] == '"' || text[i] == '\\')
			fprintf(metrics->out, "\\%c", text[i]);
		else
			putc(text[i], metrics->out);
	}
	putc('"', metrics->out);
}

static void label_number(struct metrics *metrics, const char *name, long long number)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", number);
	label(metrics, name, text);
}

/* Its labels and its value follow. */
static void begin(struct metrics *metrics, unsigned device, const char *name)
{
	fprintf(metrics->out, "frmps_%s", name);
	metrics->labels = 0;
	if (metrics->count > 1)
		label_number(metrics, "gpu", device);
}

static void value(struct metrics *metrics, long long number)
{
	fprintf(metrics->out, "%s %lld\n", metrics->labels ? "}" : "", number);
}

/* ---- the service ---- */

/* Return: whether any device answers */
static bool say_up(struct metrics *metrics)
{
	bool any = false;

	say_kind(metrics, "up", "gauge", "Whether the service answers.");
	for (unsigned i = 0; i < metrics->count; i++) {
		begin(metrics, i, "up");
		value(metrics, metrics->statuses[i] != NULL);
		any |= metrics->statuses[i] != NULL;
	}
	return any;
}

static void say_info(struct metrics *metrics)
{
	say_kind(metrics, "info", "gauge", "The service's version, backend and device; always 1.");
	for (unsigned i = 0; i < metrics->count; i++) {
		const json_t *status = metrics->statuses[i];

		if (!status)
			continue;
		begin(metrics, i, "info");
		label(metrics, "version", field_text(status, "version", ""));
		label(metrics, "backend", field_text(status, "backend", ""));
		label(metrics, "device", field_text(json_object_get(status, "device"), "name", ""));
		value(metrics, 1);
	}
}

/* @part: object with the number; NULL: the document itself */
static void say_number(struct metrics *metrics, const struct figure *figure, const char *part)
{
	say_figure(metrics, figure);
	for (unsigned i = 0; i < metrics->count; i++) {
		const json_t *status = metrics->statuses[i];

		if (!status)
			continue;
		begin(metrics, i, figure->name);
		value(metrics, field_number(part ? json_object_get(status, part) : status, figure->key));
	}
}

static void say_device_state(struct metrics *metrics, const char *name, const char *state, const char *help)
{
	say_kind(metrics, name, "gauge", help);
	for (unsigned i = 0; i < metrics->count; i++) {
		const json_t *device = json_object_get(metrics->statuses[i], "device");

		if (!metrics->statuses[i])
			continue;
		begin(metrics, i, name);
		value(metrics, !strcmp(field_text(device, "state", ""), state));
	}
}

/* A service of another version may lack a figure. */
static bool has(const struct metrics *metrics, const char *part, const char *key)
{
	for (unsigned i = 0; i < metrics->count; i++) {
		const json_t *object = json_object_get(metrics->statuses[i], part);

		if (key ? json_object_get(object, key) : object)
			return true;
	}
	return false;
}

static void say_counters(struct metrics *metrics)
{
	static const struct figure figures[] = {
#define COUNTER(counter, text) {#counter "_total", "counter", text, #counter},
#include "server/session/counters.def"
#undef COUNTER
	};

	for (size_t i = 0; i < COUNT(figures); i++)
		if (has(metrics, "counters", figures[i].key))
			say_number(metrics, &figures[i], "counters");
}

/* Counts by a label: the figure's key is the label's name. */
static void say_counts(struct metrics *metrics, const struct figure *figure, const char *part)
{
	const json_t *count;
	const char *key;

	if (!has(metrics, part, NULL))
		return;
	say_figure(metrics, figure);
	for (unsigned i = 0; i < metrics->count; i++)
		json_object_foreach (json_object_get(metrics->statuses[i], part), key, count) {
			begin(metrics, i, figure->name);
			label(metrics, figure->key, key);
			value(metrics, json_integer_value(count));
		}
}

static void say_swap_users(struct metrics *metrics, const struct figure *figure)
{
	const json_t *user;
	size_t k;

	say_figure(metrics, figure);
	for (unsigned i = 0; i < metrics->count; i++)
		json_array_foreach (
			json_object_get(json_object_get(metrics->statuses[i], "swap"), "users"), k, user) {
			begin(metrics, i, figure->name);
			label_number(metrics, "uid", field_number(user, "uid"));
			value(metrics, field_number(user, figure->key));
		}
}

static void say_partitions(struct metrics *metrics, const struct figure *figure)
{
	const json_t *partition;
	size_t k;

	say_figure(metrics, figure);
	for (unsigned i = 0; i < metrics->count; i++)
		json_array_foreach (json_object_get(metrics->statuses[i], "partitions"), k, partition) {
			begin(metrics, i, figure->name);
			label(metrics, "partition", field_text(partition, "name", ""));
			value(metrics, field_number(partition, figure->key));
		}
}

/* ---- executors ---- */

/* @key: of the sample, true or false; NULL: 1. Domains without a user lack the label. */
static void say_executors(struct metrics *metrics, const char *name, const char *key, const char *help)
{
	const json_t *domain, *executor;
	size_t k, l;

	say_kind(metrics, name, "gauge", help);
	for (unsigned i = 0; i < metrics->count; i++)
		json_array_foreach (json_object_get(metrics->statuses[i], "domains"), k, domain) {
			if (!json_is_integer(json_object_get(domain, "uid")))
				continue;
			json_array_foreach (json_object_get(domain, "executors"), l, executor) {
				begin(metrics, i, name);
				label_number(metrics, "uid", field_number(domain, "uid"));
				label_number(metrics, "pid", field_number(executor, "pid"));
				label(metrics, "role", field_text(executor, "role", ""));
				label(metrics, "state", field_text(executor, "state", ""));
				value(metrics, !key || json_is_true(json_object_get(executor, key)));
			}
		}
}

static void say_unpinning(struct metrics *metrics)
{
	const json_t *domain;
	size_t k;

	say_kind(metrics, "unpinning_bytes", "gauge",
		"Pinned host memory that programs have freed and that stays pinned until nothing runs.");
	for (unsigned i = 0; i < metrics->count; i++)
		json_array_foreach (json_object_get(metrics->statuses[i], "domains"), k, domain) {
			if (!json_is_integer(json_object_get(domain, "uid")))
				continue;
			begin(metrics, i, "unpinning_bytes");
			label_number(metrics, "uid", field_number(domain, "uid"));
			label_number(metrics, "domain", (long long)k);
			value(metrics, field_number(domain, "unpinning_bytes"));
		}
}

/* ---- sessions ---- */

/* The unique number of a Kubernetes pod, as written in the name of its control group, with '-' or
 * '_'. */
static bool find_pod(const char *cgroup, char pod[POD_UID + 1])
{
	const char *at = cgroup;

	while ((at = strstr(at, "pod"))) {
		at += strlen("pod");
		if (strspn(at, "0123456789abcdef-_") != POD_UID)
			continue;
		for (unsigned i = 0; i < POD_UID; i++)
			pod[i] = at[i] == '_' ? '-' : at[i];
		pod[POD_UID] = '\0';
		return true;
	}
	return false;
}

static void label_session(struct metrics *metrics, const json_t *session)
{
	const char *cgroup = field_text(session, "cgroup", "");
	char pod[POD_UID + 1];

	label_number(metrics, "session", field_number(session, "session"));
	label_number(metrics, "pid", field_number(session, "pid"));
	label_number(metrics, "uid", field_number(session, "uid"));
	label(metrics, "program", field_text(session, "program", ""));
	if (*cgroup)
		label(metrics, "cgroup", cgroup);
	if (find_pod(cgroup, pod))
		label(metrics, "pod_uid", pod);
}

/* @figure: with a key, or without: the state, as a label */
static void say_sessions(struct metrics *metrics, const struct figure *figure)
{
	const json_t *domain, *session;
	size_t k, l;

	say_figure(metrics, figure);
	for (unsigned i = 0; i < metrics->count; i++)
		json_array_foreach (json_object_get(metrics->statuses[i], "domains"), k, domain)
			json_array_foreach (json_object_get(domain, "clients"), l, session) {
				begin(metrics, i, figure->name);
				label_session(metrics, session);
				if (!figure->key)
					label(metrics, "state", field_text(session, "state", ""));
				value(metrics, figure->key ? field_number(session, figure->key) : 1);
			}
}

static void say_all(struct metrics *metrics)
{
	if (!say_up(metrics))
		return;
	say_info(metrics);
	for (size_t i = 0; i < COUNT(service_figures); i++)
		say_number(metrics, &service_figures[i].figure, service_figures[i].part);
	say_device_state(
		metrics, "device_failed", "failed", "1 if the device has failed and nobody is served.");
	say_device_state(metrics, "device_drained", "drained",
		"1 if an operator has the device drained: programs wait.");
	say_counters(metrics);
	say_counts(metrics, &driver_loads_figure, "driver_loads");
	say_counts(metrics, &events_figure, "events");
	for (size_t i = 0; i < COUNT(swap_user_figures); i++)
		say_swap_users(metrics, &swap_user_figures[i]);
	for (size_t i = 0; i < COUNT(partition_figures); i++)
		say_partitions(metrics, &partition_figures[i]);
	say_executors(metrics, "executor", NULL, "An executor, its role and its state; always 1.");
	say_executors(metrics, "executor_contains_faults", "contains",
		"1: a kernel's fault ends its program alone; 0: it ends this executor, or it is not ready.");
	say_unpinning(metrics);
	for (size_t i = 0; i < COUNT(session_figures); i++)
		say_sessions(metrics, &session_figures[i]);
}

char *metrics_text(json_t *const *statuses, unsigned count)
{
	char *text = NULL;
	size_t size = 0;
	struct metrics metrics = {.out = open_memstream(&text, &size), .statuses = statuses, .count = count};
	bool good;

	if (!metrics.out)
		return NULL;
	say_all(&metrics);
	good = !ferror(metrics.out);
	if (!fclose(metrics.out) && good)
		return text;
	free(text);
	return NULL;
}
