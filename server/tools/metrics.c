// See metrics.h. Every name that Prometheus sees is in the tables below, once. All samples of a
// name follow its help, as the format demands, so each name needs another pass over all executors
// or sessions.

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
};

static const struct figure swap_figures[] = {
	{"swap_host_memory_bytes", "gauge", "Host memory that the device memory of suspended programs takes.",
		"bytes"},
	{"swap_host_memory_limit_bytes", "gauge", "Most that it may take.", "most_bytes"},
	{"swap_directory_bytes", "gauge", "Device memory of suspended programs that is in swap_directory.",
		"directory_bytes"},
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

static void say_kind(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP frmps_%s %s\n# TYPE frmps_%s %s\n", name, help, name, type);
}

/* name="text", with the format's special characters escaped. Texts are the programs' own. */
static void say_label(FILE *out, const char *name, const char *text)
{
	fprintf(out, "%s=\"", name);
	for (unsigned i = 0; text[i] && i < LABEL_MAX; i++) {
		if (text[i] == '\n')
			fputs("\\n", out);
		else if (text[i] == '"' || text[i] == '\\')
			fprintf(out, "\\%c", text[i]);
		else
			putc(text[i], out);
	}
	putc('"', out);
}

/* ---- the service ---- */

static void say_service(FILE *out, const json_t *status)
{
	const json_t *device = json_object_get(status, "device");

	say_kind(out, "info", "gauge", "The service's version, backend and device; always 1.");
	fputs("frmps_info{", out);
	say_label(out, "version", field_text(status, "version", ""));
	putc(',', out);
	say_label(out, "backend", field_text(status, "backend", ""));
	putc(',', out);
	say_label(out, "device", field_text(device, "name", ""));
	fputs("} 1\n", out);
	say_kind(out, "uptime_seconds", "gauge", "How long the service has run.");
	fprintf(out, "frmps_uptime_seconds %lld\n", field_number(status, "uptime_seconds"));
	say_kind(out, "device_memory_bytes", "gauge", "Memory of the device.");
	fprintf(out, "frmps_device_memory_bytes %lld\n", field_number(device, "total_bytes"));
	say_kind(out, "device_failed", "gauge", "1 if the device has failed and nobody is served.");
	fprintf(out, "frmps_device_failed %d\n", strcmp(field_text(device, "state", ""), "failed") == 0);
	say_kind(out, "device_drained", "gauge", "1 if an operator has the device drained: programs wait.");
	fprintf(out, "frmps_device_drained %d\n", strcmp(field_text(device, "state", ""), "drained") == 0);
	for (size_t i = 0; i < COUNT(swap_figures); i++) {
		say_kind(out, swap_figures[i].name, swap_figures[i].type, swap_figures[i].help);
		fprintf(out, "frmps_%s %lld\n", swap_figures[i].name,
			field_number(json_object_get(status, "swap"), swap_figures[i].key));
	}
	say_kind(out, "keeper_overdue_seconds", "gauge",
		"How long programs that ask for device memory have waited; 0 as a rule.");
	fprintf(out, "frmps_keeper_overdue_seconds %lld\n",
		field_number(json_object_get(status, "keeper"), "overdue_seconds"));
}

static void say_counters(FILE *out, const json_t *counters)
{
	static const struct figure figures[] = {
#define COUNTER(counter, text) {#counter "_total", "counter", text, #counter},
#include "server/session/counters.def"
#undef COUNTER
	};

	for (size_t i = 0; i < COUNT(figures); i++) {
		const struct figure *figure = &figures[i];

		/* A service of another version may lack the figure. */
		if (!json_object_get(counters, figure->key))
			continue;
		say_kind(out, figure->name, figure->type, figure->help);
		fprintf(out, "frmps_%s %lld\n", figure->name, field_number(counters, figure->key));
	}
}

/* Counts by a label: the figure's key is the label's name. A service of another version may lack
 * them. */
static void say_counts(FILE *out, const json_t *counts, const struct figure *figure)
{
	const json_t *count;
	const char *value;

	if (!counts)
		return;
	say_kind(out, figure->name, figure->type, figure->help);
	json_object_foreach ((json_t *)counts, value, count) {
		fprintf(out, "frmps_%s{", figure->name);
		say_label(out, figure->key, value);
		fprintf(out, "} %lld\n", (long long)json_integer_value(count));
	}
}

static void say_swap_users(FILE *out, const json_t *users, const struct figure *figure)
{
	const json_t *user;
	size_t i;

	say_kind(out, figure->name, figure->type, figure->help);
	json_array_foreach (users, i, user)
		fprintf(out, "frmps_%s{uid=\"%lld\"} %lld\n", figure->name, field_number(user, "uid"),
			field_number(user, figure->key));
}

static void say_partitions(FILE *out, const json_t *partitions, const struct figure *figure)
{
	const json_t *partition;
	size_t i;

	say_kind(out, figure->name, figure->type, figure->help);
	json_array_foreach (partitions, i, partition) {
		fprintf(out, "frmps_%s{", figure->name);
		say_label(out, "partition", field_text(partition, "name", ""));
		fprintf(out, "} %lld\n", field_number(partition, figure->key));
	}
}

/* ---- executors ---- */

static void say_executor(FILE *out, const json_t *domain, const json_t *executor, const char *name, int value)
{
	fprintf(out, "frmps_%s{uid=\"%lld\",pid=\"%lld\",", name, field_number(domain, "uid"),
		field_number(executor, "pid"));
	say_label(out, "role", field_text(executor, "role", ""));
	putc(',', out);
	say_label(out, "state", field_text(executor, "state", ""));
	fprintf(out, "} %d\n", value);
}

/* @key: of the sample, true or false; NULL: 1. Skips domains without a user, which lack
 * the label. */
static void say_each_executor(FILE *out, const json_t *domains, const char *name, const char *key)
{
	const json_t *domain, *executor;
	size_t i, k;

	json_array_foreach (domains, i, domain) {
		if (json_is_integer(json_object_get(domain, "uid")))
			json_array_foreach (json_object_get(domain, "executors"), k, executor)
				say_executor(out, domain, executor, name,
					!key || json_is_true(json_object_get(executor, key)));
	}
}

static void say_executors(FILE *out, const json_t *domains)
{
	const json_t *domain;
	size_t i;

	say_kind(out, "executor", "gauge", "An executor, its role and its state; always 1.");
	say_each_executor(out, domains, "executor", NULL);
	say_kind(out, "executor_contains_faults", "gauge",
		"1: a kernel's fault ends its program alone; 0: it ends this executor, or it is not ready.");
	say_each_executor(out, domains, "executor_contains_faults", "contains");
	say_kind(out, "unpinning_bytes", "gauge",
		"Pinned host memory that programs have freed and that stays pinned until nothing runs.");
	json_array_foreach (domains, i, domain) {
		if (json_is_integer(json_object_get(domain, "uid")))
			fprintf(out, "frmps_unpinning_bytes{uid=\"%lld\",domain=\"%zu\"} %lld\n",
				field_number(domain, "uid"), i, field_number(domain, "unpinning_bytes"));
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

static void say_session_labels(FILE *out, const json_t *session)
{
	const char *cgroup = field_text(session, "cgroup", "");
	char pod[POD_UID + 1];

	fprintf(out, "{session=\"%lld\",pid=\"%lld\",uid=\"%lld\",", field_number(session, "session"),
		field_number(session, "pid"), field_number(session, "uid"));
	say_label(out, "program", field_text(session, "program", ""));
	if (*cgroup) {
		putc(',', out);
		say_label(out, "cgroup", cgroup);
	}
	if (find_pod(cgroup, pod)) {
		putc(',', out);
		say_label(out, "pod_uid", pod);
	}
}

static void say_sessions(FILE *out, const json_t *domains, const struct figure *figure)
{
	const json_t *domain, *session;
	size_t i, k;

	say_kind(out, figure->name, figure->type, figure->help);
	json_array_foreach (domains, i, domain) {
		json_array_foreach (json_object_get(domain, "clients"), k, session) {
			fprintf(out, "frmps_%s", figure->name);
			say_session_labels(out, session);
			fprintf(out, "} %lld\n", field_number(session, figure->key));
		}
	}
}

static void say_states(FILE *out, const json_t *domains)
{
	const json_t *domain, *session;
	size_t i, k;

	say_kind(out, "session_state", "gauge", "The state in which a session is; always 1.");
	json_array_foreach (domains, i, domain) {
		json_array_foreach (json_object_get(domain, "clients"), k, session) {
			fputs("frmps_session_state", out);
			say_session_labels(out, session);
			putc(',', out);
			say_label(out, "state", field_text(session, "state", ""));
			fputs("} 1\n", out);
		}
	}
}

static void say_all(FILE *out, const json_t *status)
{
	const json_t *domains = json_object_get(status, "domains");

	say_kind(out, "up", "gauge", "Whether the service answers.");
	fprintf(out, "frmps_up %d\n", status != NULL);
	if (!status)
		return;
	say_service(out, status);
	say_counters(out, json_object_get(status, "counters"));
	say_counts(out, json_object_get(status, "driver_loads"), &driver_loads_figure);
	say_counts(out, json_object_get(status, "events"), &events_figure);
	for (size_t i = 0; i < COUNT(swap_user_figures); i++)
		say_swap_users(out, json_object_get(json_object_get(status, "swap"), "users"),
			&swap_user_figures[i]);
	for (size_t i = 0; i < COUNT(partition_figures); i++)
		say_partitions(out, json_object_get(status, "partitions"), &partition_figures[i]);
	say_executors(out, domains);
	for (size_t i = 0; i < COUNT(session_figures); i++)
		say_sessions(out, domains, &session_figures[i]);
	say_states(out, domains);
}

/* Return: the text; NULL without memory */
static char *close_text(FILE *out, char *const *text)
{
	bool good = !ferror(out);

	if (!fclose(out) && good)
		return *text;
	free(*text);
	return NULL;
}

char *metrics_text(const json_t *status)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	say_all(out, status);
	return close_text(out, &text);
}

/*
 * Several devices: their texts are joined, because the format wants samples of a name together.
 */

/* The lines of one name, in a text: two that explain it, and any number of samples. */
struct family {
	const char *name, *samples, *end; /* begin of the former, of the latter; the end */
};

static const char *next_line(const char *line)
{
	const char *end = strchr(line, '\n');

	return end ? end + 1 : line + strlen(line);
}

/* @at: begin of a family. Return: false at the end of the text */
static bool read_family(const char *at, struct family *ret_family)
{
	const char *line = next_line(next_line(at));

	*ret_family = (struct family){.name = at, .samples = line};
	while (*line && *line != '#')
		line = next_line(line);
	ret_family->end = line;
	return *at;
}

/* The first lines of two families are the same if their names are. */
static bool is_same(const struct family *one, const struct family *other)
{
	const size_t length = (size_t)(next_line(one->name) - one->name);

	return !strncmp(one->name, other->name, length);
}

static bool find_family(const char *text, const struct family *wanted, struct family *ret_family)
{
	for (const char *at = text; read_family(at, ret_family); at = ret_family->end)
		if (is_same(wanted, ret_family))
			return true;
	return false;
}

static void put_samples(FILE *out, const struct family *family, unsigned number)
{
	for (const char *line = family->samples, *next; line < family->end; line = next) {
		const size_t name = strcspn(line, "{ "), labels = line[name] == '{';

		next = next_line(line);
		fprintf(out, "%.*s{gpu=\"%u\"%s%.*s", (int)name, line, number, labels ? "," : "}",
			(int)((size_t)(next - line) - name - labels), line + name + labels);
	}
}

/* A family of a text, with those of the texts behind it, unless an earlier text has it. */
static void join(FILE *out, char *const *texts, unsigned count, unsigned number, const struct family *family)
{
	struct family found;

	for (unsigned i = 0; i < number; i++)
		if (find_family(texts[i], family, &found))
			return;
	fwrite(family->name, 1, (size_t)(family->samples - family->name), out);
	for (unsigned i = number; i < count; i++)
		if (find_family(texts[i], family, &found))
			put_samples(out, &found, i);
}

static char *join_all(char *const *texts, unsigned count)
{
	struct family family;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (unsigned i = 0; i < count; i++)
		for (const char *at = texts[i]; read_family(at, &family); at = family.end)
			join(out, texts, count, i, &family);
	return close_text(out, &text);
}

char *metrics_of_devices(json_t *const *statuses, unsigned count)
{
	char **texts = calloc(count, sizeof(*texts)), *text = NULL;
	bool all = texts;

	for (unsigned i = 0; all && i < count; i++)
		all = (texts[i] = metrics_text(statuses[i]));
	if (all)
		text = join_all(texts, count);
	for (unsigned i = 0; texts && i < count; i++)
		free(texts[i]);
	free(texts);
	return text;
}
