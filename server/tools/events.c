// See events.h. Each request names the latest known event, and the service answers when there is a
// later event: between requests the service stores nothing for us.

#include "server/tools/events.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "server/tools/ask.h"
#include "server/tools/command.h"
#include "server/tools/field.h"
#include "server/tools/manual.h"

/* Delay before asking a service again after a broken connection: its daemon may have been
 * replaced. */
#define AGAIN_SECONDS 1u
/* An answer is awaited for as long as nothing happens. */
#define FOR_EVER 0u

struct view {
	bool follow, json, begun;
	FILE *out;
	long long latest, noted; /* of the document before */
};

static void print_event(const struct view *view, const json_t *event)
{
	const long long time_ms = field_number(event, "time_ms");
	const time_t seconds = (time_t)(time_ms / 1000);
	const json_t *uid = json_object_get(event, "uid");
	struct tm parts;
	char date[32];

	localtime_r(&seconds, &parts);
	strftime(date, sizeof(date), "%F %T", &parts);
	fprintf(view->out, "%s.%03lld  %-10s  ", date, time_ms % 1000, field_text(event, "kind", "-"));
	if (json_is_integer(uid))
		fprintf(view->out, "user %lld  ", (long long)json_integer_value(uid));
	fprintf(view->out, "%s\n", field_text(event, "text", "-"));
}

static void print_missed(const struct view *view, long long count)
{
	if (view->json)
		fprintf(view->out, "{\"missed\":%lld}\n", count);
	else
		fprintf(view->out, "%lld events are missing here: the service has kept later ones only\n",
			count);
}

static void print_events(const struct view *view, const json_t *events)
{
	const json_t *event;
	size_t index;

	json_array_foreach (events, index, event) {
		if (!view->json) {
			print_event(view, event);
			continue;
		}
		json_dumpf(event, view->out, JSON_COMPACT);
		fputc('\n', view->out);
	}
}

/* Return: true to go on */
static bool print(struct view *view, const json_t *root)
{
	const json_t *events = json_object_get(root, "events");
	const long long noted = field_number(root, "noted");
	const long long missed = noted - view->noted - (long long)json_array_size(events);

	if (view->begun && missed > 0)
		print_missed(view, missed);
	if (view->json && !view->follow) {
		json_dumpf(root, view->out, JSON_INDENT(2));
		fputc('\n', view->out);
	} else {
		print_events(view, events);
	}
	if (!view->follow && !view->json && !json_array_size(events))
		fputs("no events since the service started\n", view->out);
	view->latest = field_number(root, "latest");
	view->noted = noted;
	view->begun = true;
	return !manual_flush(view->out);
}

/* @number: NULL: all present events, at once; else the events after this number. Return: as
 * call_try() */
static int ask_events(const struct call *call, const char *number, json_t **ret_root, char *text, size_t size)
{
	const struct wire_names arguments = {&number, number ? 1 : 0};

	return call_try(call, "events", &arguments, number ? FOR_EVER : ASK_SECONDS, ret_root, text, size);
}

int events_show(const struct call *call, FILE *out)
{
	struct view view = {.follow = call->follow, .json = call->json, .out = out};
	char text[700], number[24];
	json_t *root = NULL;
	int r = ask_events(call, NULL, &root, text, sizeof(text));
	bool good;

	while (!r || (r == -ECONNRESET && view.begun)) {
		if (r) {
			sleep(AGAIN_SECONDS);
		} else {
			good = print(&view, root);
			json_decref(root);
			if (!good || !view.follow)
				return good ? 0 : 1;
		}
		snprintf(number, sizeof(number), "%lld", view.latest);
		r = ask_events(call, number, &root, text, sizeof(text));
	}
	return call_fail(call, r, text);
}
