// See question.h.

#include "client/nvml/question.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/link/ask.h"
#include "protocol/place.h"

#define PATIENCE_S 5u

static bool read_processes(const char *text, struct seen *seen)
{
	const char *at = ask_find(text, "processes"), *end = at ? strchr(at, ']') : NULL;

	seen->process_count = 0;
	while (end && (at = strchr(at, '{')) && at < end) {
		struct seen_process *process = &seen->processes[seen->process_count];

		if (seen->process_count == SEEN_PROCESSES_MAX || !ask_small(at, "pid", &process->pid) ||
			!ask_number(at, "memory_bytes", &process->bytes))
			return false;
		seen->process_count++;
		at++;
	}
	return end;
}

/* Without these keys, the service has a single device. */
static void read_place(const char *text, struct seen *seen)
{
	if (!ask_small(text, "number", &seen->number) || !ask_small(text, "devices", &seen->devices) ||
		!seen->devices || seen->devices > PLACE_DEVICES || seen->number >= seen->devices) {
		seen->number = 0;
		seen->devices = 1;
	}
}

/* Without this key, the service knows no peers. */
static void read_peers(const char *text, struct seen *seen)
{
	char peers[2 * PLACE_DEVICES + 1], *end;

	memset(seen->peers, 0, sizeof(seen->peers));
	if (!ask_text(text, "peers", peers, sizeof(peers)))
		return;
	for (size_t i = 0; peers[2 * i] && peers[2 * i + 1]; i++) {
		const char digits[3] = {peers[2 * i], peers[2 * i + 1], '\0'};

		seen->peers[i] = (uint8_t)strtoul(digits, &end, 16);
	}
}

int question_parse(const char *text, struct seen *seen)
{
	read_place(text, seen);
	read_peers(text, seen);
	return ask_text(text, "name", seen->name, sizeof(seen->name)) &&
			       ask_text(text, "uuid", seen->uuid, sizeof(seen->uuid)) &&
			       ask_text(text, "pci", seen->pci, sizeof(seen->pci)) &&
			       ask_small(text, "driver_version", &seen->driver_version) &&
			       ask_small(text, "major", &seen->major) &&
			       ask_small(text, "minor", &seen->minor) &&
			       ask_number(text, "total_bytes", &seen->total_bytes) &&
			       ask_number(text, "used_bytes", &seen->used_bytes) && read_processes(text, seen)
		       ? 0
		       : -1;
}

int question_ask(unsigned number, struct seen *ret_seen)
{
	char *text;
	CUresult code = ask_service(number, "seen", NULL, PATIENCE_S, &text);
	int r = !code && text ? question_parse(text, ret_seen) : -1;

	free(text);
	return r;
}

int question_ask_any(struct seen *ret_seen)
{
	int r = -1;

	for (unsigned i = 0; r && i < PLACE_DEVICES; i++)
		r = question_ask(i, ret_seen);
	return r;
}
