// See top.h.

#include "server/tools/top.h"

#include <stdlib.h>
#include <string.h>

#include "server/tools/field.h"

struct line {
	const json_t *session;
	double rate; /* commands a second */
};

struct table {
	struct line *lines;
	size_t count;
	long long memory, pinned; /* bytes */
	double rate;
};

void top_bytes(char *text, long long bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	unsigned unit = 0;

	for (; value >= 1024 && unit < 4; unit++)
		value /= 1024;
	snprintf(text, TOP_BYTES_MAX, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

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

	/* Of one that has just come nobody knows since when it has done what it did. */
	*line = (struct line){
		session, earlier && ns && commands > 0 ? (double)commands * 1e9 / (double)ns : 0};
	table->rate += line->rate;
	table->memory += field_number(session, "memory_bytes");
	table->pinned += field_number(session, "host_bytes");
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
	const char *program = field_text(line->session, "program", "-");
	char memory[TOP_BYTES_MAX], pinned[TOP_BYTES_MAX];

	top_bytes(memory, field_number(line->session, "memory_bytes"));
	top_bytes(pinned, field_number(line->session, "host_bytes"));
	fprintf(out, "%8lld %8lld %8lld  %-8s %5lld %4lld%% %10s %10s %11.0f  %.*s%s",
		field_number(line->session, "session"), field_number(line->session, "pid"),
		field_number(line->session, "uid"), field_text(line->session, "state", "-"),
		field_number(line->session, "multiprocessors"), field_number(line->session, "sm_percent"),
		memory, pinned, line->rate, cut(program, 20), program, end);
}

void top_print(
	const json_t *before, const json_t *now, uint64_t ns, unsigned rows, const char *end, FILE *out)
{
	const json_t *device = json_object_get(now, "device"), *counters = json_object_get(now, "counters");
	char memory[TOP_BYTES_MAX], total[TOP_BYTES_MAX], pinned[TOP_BYTES_MAX];
	struct table table;
	size_t shown;

	make_table(&table, before, now, ns);
	top_bytes(memory, table.memory);
	top_bytes(total, field_number(device, "total_bytes"));
	top_bytes(pinned, table.pinned);
	fprintf(out, "%s: %zu programs, %s of %s, %s pinned, %.0f commands/s, %lld faults%s%s",
		field_text(device, "name", "-"), table.count, memory, total, pinned, table.rate,
		field_number(counters, "faults"), end, end);
	fprintf(out, "%8s %8s %8s  %-8s %5s %5s %10s %10s %11s  %s%s", "SESSION", "PID", "UID", "STATE",
		"SMS", "ASKED", "MEMORY", "PINNED", "COMMANDS/S", "PROGRAM", end);
	shown = rows && table.count + 3 > rows ? rows > 4 ? rows - 4 : 0 : table.count;
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
	return json_pack("{sO? sI sI sf sI so}", "device", json_object_get(now, "device"), "memory_bytes",
		(json_int_t)table.memory, "host_bytes", (json_int_t)table.pinned, "commands_per_second",
		table.rate, "faults", (json_int_t)field_number(json_object_get(now, "counters"), "faults"),
		"sessions", sessions);
}
