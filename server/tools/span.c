// See span.h.

#include "server/tools/span.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sysexits.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "server/tools/command.h"
#include "server/tools/field.h"
#include "server/tools/manual.h"

enum span_kind {
	SPAN_SHOW,    /* each device, below a line that names it; as JSON, a list with an element for each */
	SPAN_LIST,    /* each device, one list; JSON as above */
	SPAN_ORDER,   /* the device that an argument names, else each; the first one's answer is shown */
	SPAN_FIRST,   /* the first device that answers: the same for all */
	SPAN_WHOLE,   /* looks at the service's devices itself */
	SPAN_NUMBER,  /* each device has a number of its own for it, so the operator names one */
	SPAN_SESSION, /* the device that has the session */
	SPAN_SERVER,  /* the device that has the server with that process */
	SPAN_CLIENT,  /* the device that has the program */
	SPAN_DEVICE,  /* the device that an argument names */
};

/* A command's row. */
struct span {
	const char *name;
	enum span_kind kind;
	int word; /* argument, without options, that names server, client, session or device; -1: none */
	/* SPAN_LIST, SPAN_DEVICE: the device is the rest of the argument that begins so */
	const char *option;
};

struct target {
	const struct call *call;
	command_fn *run;
	struct ask_devices devices;
};

/* Runs the command on a device. @position, @most: as in struct call. Return: exit code */
static int run_on(const struct target *target, unsigned number, unsigned position, unsigned most)
{
	struct call call = *target->call;
	char path[PLACE_BYTES];

	place_of_device(target->call->path, number, path);
	call.path = path;
	call.devices = most;
	call.position = position;
	return target->run(&call);
}

static void announce(const struct target *target, unsigned number)
{
	const char *uuid = target->devices.uuid[number];

	if (target->call->json)
		fputs(number ? "," : "[", stdout);
	else
		printf("%sdevice %u (%s):\n", number ? "\n" : "", number, *uuid ? uuid : "no answer");
	manual_flush(stdout);
}

/* Every device. A device that fails is null in a JSON list. Return: exit code, of the first that
 * failed */
static int run_on_each(const struct target *target, bool announces)
{
	const unsigned count = target->devices.count;
	int code = 0, r;

	for (unsigned i = 0; i < count; i++) {
		if (announces || target->call->json)
			announce(target, i);
		r = run_on(target, i, i, count);
		if (r && target->call->json)
			puts("null");
		code = code ? code : r;
	}
	if (target->call->json)
		puts("]");
	return code ? code : manual_flush(stdout);
}

/* Every device; the first one's answer is shown. Return: exit code, of the first that failed */
static int order_each(const struct target *target)
{
	int code = 0, r;

	for (unsigned i = 0; i < target->devices.count; i++) {
		r = run_on(target, i, i, target->devices.count);
		code = code ? code : r;
	}
	return code;
}

static int run_on_first(const struct target *target)
{
	unsigned first = 0;

	while (first + 1 < target->devices.count && !*target->devices.uuid[first])
		first++;
	return run_on(target, first, 0, 0);
}

/* @ret_number: of the device of that number, or whose UUID begins so. Return: true for one */
static bool find_device(const struct ask_devices *devices, const char *word, unsigned *ret_number)
{
	unsigned long number;
	unsigned found = 0;
	char *end;

	number = strtoul(word, &end, 10);
	if (*word >= '0' && *word <= '9' && !*end) {
		*ret_number = (unsigned)number;
		return number < devices->count;
	}
	for (unsigned i = 0; strlen(word) > strlen("GPU-") && i < devices->count; i++)
		if (!strncasecmp(devices->uuid[i], word, strlen(word))) {
			*ret_number = i;
			found++;
		}
	return found == 1;
}

static int refuse_device(const struct target *target, const char *word)
{
	fprintf(stderr, "%s: %s: there is no device %s: the service has %u, from 0\n", target->call->program,
		target->call->name, word, target->devices.count);
	return 1;
}

static int run_on_named(const struct target *target, const char *word)
{
	unsigned number = 0;

	return find_device(&target->devices, word, &number) ? run_on(target, number, 0, 0)
							    : refuse_device(target, word);
}

/* What a word is to name, in the status of a device. */
struct named {
	const char *list; /* of each domain */
	const char *field;
};

static const struct named servers = {"executors", "pid"}, clients = {"clients", "pid"},
			  sessions = {"clients", "session"};

static bool is_named(const json_t *entry, const char *field, const char *word)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%lld", field_number(entry, field));
	return !strcmp(digits, word);
}

static bool has(const json_t *root, const struct named *named, const char *word)
{
	json_t *domain, *entry;
	size_t i, j;

	json_array_foreach (json_object_get(root, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, named->list), j, entry)
			if (is_named(entry, named->field, word))
				return true;
	return false;
}

/* The device that has what a word names. A word that names nothing on any device goes to the first,
 * which says what is wrong with it. Return: exit code */
static int run_on_owner(const struct target *target, const struct named *named, const char *word)
{
	char path[PLACE_BYTES], text[2400];
	bool is_there = false;
	json_t *root;

	for (unsigned i = 0; i < target->devices.count; i++) {
		struct call call = *target->call;

		place_of_device(target->call->path, i, path);
		call.path = path;
		if (!*target->devices.uuid[i] || call_try(&call, "status", &(struct wire_names){0},
							 ASK_SECONDS, &root, text, sizeof(text)))
			continue;
		is_there = has(root, named, word);
		json_decref(root);
		if (is_there)
			return run_on(target, i, 0, 0);
	}
	return run_on_first(target);
}

static const struct span *find_span(const char *name)
{
	static const struct span spans[] =
		{
#define SPAN(name, kind, word, option) {name, kind, word, option},
#include "server/tools/span.def"
#undef SPAN
		},
				 other = {.kind = SPAN_SHOW, .word = -1};

	for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++)
		if (!strcmp(spans[i].name, name))
			return &spans[i];
	return &other;
}

/* The argument that decides. Return: NULL without one */
static const char *find_word(const struct span *span, const struct call *call)
{
	for (int i = 0; span->option && i < call->count; i++)
		if (!strncmp(call->arguments[i], span->option, strlen(span->option)))
			return call->arguments[i] + strlen(span->option);
	for (int i = 0, word = 0; i < call->count; i++)
		if (*call->arguments[i] != '-' && word++ == span->word)
			return call->arguments[i];
	return NULL;
}

static int ask_for_device(const struct target *target, const char *why)
{
	fprintf(stderr, "%s: %s: the service has %u devices, and %s: --device names one\n",
		target->call->program, target->call->name, target->devices.count, why);
	return EX_USAGE;
}

/* Several devices. Return: exit code */
static int run_across(const struct target *target, const struct span *span)
{
	const char *word = find_word(span, target->call);

	switch (span->kind) {
	case SPAN_SHOW:
		return target->call->follow ? ask_for_device(target, "one is followed at a time")
					    : run_on_each(target, true);
	case SPAN_LIST:
		if (!word)
			return run_on_each(target, false);
		return span->option ? run_on_named(target, word) : run_on_owner(target, &servers, word);
	case SPAN_ORDER:
		return word ? run_on_named(target, word) : order_each(target);
	case SPAN_FIRST:
		return run_on_first(target);
	case SPAN_WHOLE:
		return target->run(target->call);
	case SPAN_NUMBER:
		return ask_for_device(target, "each has numbers of its own");
	case SPAN_SESSION:
		return word ? run_on_owner(target, &sessions, word) : run_on_first(target);
	case SPAN_SERVER:
		return word ? run_on_owner(target, &servers, word) : run_on_first(target);
	case SPAN_CLIENT:
		return word ? run_on_owner(target, &clients, word) : run_on_first(target);
	case SPAN_DEVICE:
		return word ? run_on_named(target, word) : run_on_first(target);
	}
	return run_on_first(target);
}

/* JSON has the same form whichever devices are there, also at the start. @ret_text: on failure, a
 * sentence. Return: as ask() */
static int find_devices(const struct call *call, struct ask_devices *devices, char *ret_text, size_t size)
{
	int r;

	while (ask_devices(call->path, !call->device && !call->json, devices)) {
		r = ask_with(call->path, "ping", &(struct wire_names){0}, ASK_SECONDS, NULL, ret_text, size);
		if (r)
			return r;
	}
	return 0;
}

int span_run(const struct call *call, command_fn *run)
{
	const struct span *span = find_span(call->name);
	struct target target = {.call = call, .run = run};
	char text[2400];
	int r = find_devices(call, &target.devices, text, sizeof(text));

	if (r && call->json && (span->kind == SPAN_SHOW || span->kind == SPAN_LIST))
		return call_fail(call, r, text);
	if (call->device && !r)
		return run_on_named(&target, call->device);
	/* Where none answers, the command says so. */
	if (r || target.devices.count == 1 || target.devices.number)
		return run(call);
	return run_across(&target, span);
}
