// See top.h.

#include "server/tools/top.h"

#include <stdlib.h>
#include <string.h>

#include "server/tools/field.h"

/* Bytes of a name that are shown. */
#define PROGRAM_ROOM 32u

struct line {
	const json_t *session;
	double rate; /* commands a second */
};

struct table {
	struct line *lines;
	size_t count;
	uint64_t memory, pinned, away; /* bytes */
	double rate;
};

static const json_t *find_session(const json_t *status, long long number)
{
	const json_t *domain, *session;
	size_t i, k;

	json_array_foreach (json_object_get(status, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, "clients"), k, session)
			if (field_number(session, "session") == number)
				return session;
	return NULL;
}

static void add_line(struct table *table, const json_t *before, const json_t *session, uint64_t ns)
{
	const json_t *earlier = find_session(before, field_number(session, "session"));
	long long commands = field_number(session, "commands") - field_number(earlier, "commands");
	struct line *line = &table->lines[table->count++];

	/* For a new session, nobody knows the time of its commands so far. */
	*line = (struct line){
		session, earlier && ns && commands > 0 ? (double)commands * 1e9 / (double)ns : 0};
	table->rate += line->rate;
	table->memory += (uint64_t)field_number(session, "memory_bytes");
	table->pinned += (uint64_t)field_number(session, "host_bytes");
	table->away += (uint64_t)field_number(session, "swapped_bytes");
}

static int by_rate(const void *a, const void *b)
{
	const struct line *left = a, *right = b;

	if (left->rate != right->rate)
		return left->rate < right->rate ? 1 : -1;
	return field_number(left->session, "session") < field_number(right->session, "session") ? -1 : 1;
}

static void make_table(struct table *table, const json_t *before, const json_t *now, uint64_t ns)
{
	const json_t *domains = json_object_get(now, "domains"), *domain, *session;
	size_t i, k, count = 0;

	json_array_foreach (domains, i, domain)
		count += json_array_size(json_object_get(domain, "clients"));
	*table = (struct table){.lines = calloc(count + 1, sizeof(struct line))};
	if (!table->lines)
		return;
	json_array_foreach (domains, i, domain)
		json_array_foreach (json_object_get(domain, "clients"), k, session)
			add_line(table, before, session, ns);
	qsort(table->lines, table->count, sizeof(struct line), by_rate);
}

/* Return: the bytes of a text that a column has room for, whole letters */
static int cut(const char *text, size_t room)
{
	size_t length = strnlen(text, room);

	while (length && ((unsigned char)text[length] & 0xc0) == 0x80)
		length--;
	return (int)length;
}

static void print_line(const struct line *line, const char *end, FILE *out)
{
	const json_t *one = line->session;
	const char *program = field_text(one, "program", "-");

	fprintf(out, "%8lld %8lld %6lld  %-9s %7s %6lld %4lld %4lld%% %7s %7s %7s %10.0f  %.*s%s",
		field_number(one, "session"), field_number(one, "pid"), field_number(one, "uid"),
		field_text(one, "state", "-"), field_text(one, "class", "-"), field_number(one, "weight"),
		field_number(one, "multiprocessors"), field_number(one, "sm_percent"),
		FIELD_BYTES(one, "memory_bytes"), FIELD_LIMIT(one, "memory_limit"),
		FIELD_BYTES(one, "host_bytes"), line->rate, cut(program, PROGRAM_ROOM), program, end);
}

/* Return: how many lines */
static size_t print_swap(const json_t *users, const char *end, FILE *out)
{
	const json_t *user;
	size_t i;

	json_array_foreach (users, i, user)
		fprintf(out, "user %lld: %s of %s in host memory, %s in swap_directory%s",
			field_number(user, "uid"), FIELD_BYTES(user, "bytes"),
			FIELD_BYTES(user, "most_bytes"), FIELD_BYTES(user, "directory_bytes"), end);
	return json_array_size(users);
}

void top_print(
	const json_t *before, const json_t *now, uint64_t ns, unsigned rows, const char *end, FILE *out)
{
	const json_t *device = json_object_get(now, "device"), *counters = json_object_get(now, "counters");
	struct table table;
	size_t shown, head; /* lines */

	make_table(&table, before, now, ns);
	fprintf(out, "%s: %zu programs, %s of %s, ", field_text(device, "name", "-"), table.count,
		BYTES_OF(table.memory), FIELD_BYTES(device, "total_bytes"));
	if (table.away)
		fprintf(out, "%s away, ", BYTES_OF(table.away));
	fprintf(out, "%s pinned, %.0f commands/s, %lld faults%s%s", BYTES_OF(table.pinned), table.rate,
		field_number(counters, "faults"),
		strcmp(field_text(device, "state", ""), "drained") ? "" : ", drained", end);
	head = 3 + print_swap(json_object_get(json_object_get(now, "swap"), "users"), end, out);
	fprintf(out, "%s%8s %8s %6s  %-9s %7s %6s %4s %5s %7s %7s %7s %10s  %s%s", end, "SESSION", "PID",
		"UID", "STATE", "CLASS", "WEIGHT", "SMS", "ASKED", "MEMORY", "LIMIT", "PINNED", "COMMANDS/S",
		"PROGRAM", end);
	shown = rows && table.count + head > rows ? rows > head + 1 ? rows - head - 1 : 0 : table.count;
	for (size_t i = 0; i < shown; i++)
		print_line(&table.lines[i], end, out);
	if (shown < table.count)
		fprintf(out, "%zu more%s", table.count - shown, end);
	free(table.lines);
}

static json_t *line_json(const struct line *line)
{
	json_t *session = json_copy((json_t *)line->session);

	json_object_set_new(session, "commands_per_second", json_real(line->rate));
	return session;
}

json_t *top_json(const json_t *before, const json_t *now, uint64_t ns)
{
	json_t *sessions = json_array();
	struct table table;

	make_table(&table, before, now, ns);
	for (size_t i = 0; i < table.count; i++)
		json_array_append_new(sessions, line_json(&table.lines[i]));
	free(table.lines);
	return json_pack("{sO? sO? sI sI sI sf sI so}", "swap", json_object_get(now, "swap"), "device",
		json_object_get(now, "device"), "memory_bytes", (json_int_t)table.memory, "swapped_bytes",
		(json_int_t)table.away, "host_bytes", (json_int_t)table.pinned, "commands_per_second",
		table.rate, "faults", (json_int_t)field_number(json_object_get(now, "counters"), "faults"),
		"sessions", sessions);
}
