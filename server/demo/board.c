// See board.h.

#include "server/demo/board.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char board_head[] = "                               kernels  pause of   longest\n"
			  "program         pid   kernels a second the crash  since it  state\n";

static bool read_end(struct board_program *program, const char *word)
{
	if (strcmp(word, "exact") == 0)
		program->state = BOARD_EXACT;
	else if (strcmp(word, "wrong") == 0)
		program->state = BOARD_WRONG;
	else
		return false;
	return true;
}

static void add_gap(struct board_program *program, const struct board_gap *gap)
{
	program->gaps[program->gap_count++ % BOARD_GAPS] = *gap;
	if (program->state == BOARD_STARTS)
		program->state = BOARD_RUNS;
}

bool board_read(struct board_program *program, const char *line)
{
	struct board_gap gap;
	uint64_t kernels, at;
	char name[sizeof(program->error)];
	int code;

	if (sscanf(line, "did %" SCNu64 " %" SCNu64 " %" SCNu64, &kernels, &gap.from_ns, &gap.until_ns) ==
			3 &&
		gap.from_ns <= gap.until_ns) {
		program->kernels = kernels;
		add_gap(program, &gap);
		return true;
	}
	if (sscanf(line, "fault %" SCNu64, &at) == 1) {
		program->fault_ns = at;
		program->state = BOARD_FAULTS;
		return true;
	}
	if (sscanf(line, "error %" SCNu64 " %d %63s", &at, &code, name) == 3) {
		program->error_ns = at;
		program->code = code;
		memcpy(program->error, name, sizeof(name));
		program->state = BOARD_FAILED;
		return true;
	}
	return strncmp(line, "end ", 4) == 0 && read_end(program, line + 4);
}

uint64_t board_pause_of(const struct board_program *program, const struct board_gap *crash)
{
	size_t count = program->gap_count < BOARD_GAPS ? program->gap_count : BOARD_GAPS;
	uint64_t longest = 0;

	for (size_t i = 0; i < count; i++) {
		const struct board_gap *gap = &program->gaps[i];
		uint64_t length = gap->until_ns - gap->from_ns;

		if (gap->until_ns > crash->from_ns && gap->from_ns < crash->until_ns && length > longest)
			longest = length;
	}
	return longest >= 1000000 ? longest : 0;
}

uint64_t board_longest_since(const struct board_program *program, uint64_t moment_ns)
{
	return board_pause_of(program, &(struct board_gap){moment_ns, UINT64_MAX});
}

/* @text: of 16 bytes */
static void write_pause(uint64_t ns, char *text)
{
	if (ns)
		snprintf(text, 16, "%.1f ms", (double)ns / 1e6);
	else
		snprintf(text, 16, "< 1 ms");
}

/* @text: of 32 bytes */
static void write_state(const struct board_program *program, char *text)
{
	static const char *const names[] = {[BOARD_STARTS] = "starts",
		[BOARD_RUNS] = "runs",
		[BOARD_FAULTS] = "faults",
		[BOARD_FAILED] = "error",
		[BOARD_EXACT] = "exact",
		[BOARD_WRONG] = "WRONG"};
	int length = snprintf(text, 32, "%s", names[program->state]);

	if (program->state == BOARD_FAILED)
		length += snprintf(text + length, 32 - (size_t)length, " %d", program->code);
	if (program->exit_status >= 0)
		snprintf(text + length, 32 - (size_t)length, ", exit %d", program->exit_status);
}

void board_line(const struct board_program *program, const struct board_gap *crash, char *text)
{
	char pause[16] = "-", longest[16] = "-", state[32];

	/* The culprit itself, and any program that got an error as well, has not paused but
	 * ended. */
	if (crash->from_ns && !program->fault_ns && program->state != BOARD_FAILED) {
		write_pause(board_pause_of(program, crash), pause);
		write_pause(board_longest_since(program, crash->from_ns), longest);
	}
	write_state(program, state);
	snprintf(text, BOARD_COLUMNS, "%-11.11s %7d %9" PRIu64 " %8.0f %9.9s %9.9s  %.19s", program->name,
		program->pid, program->kernels, program->rate, pause, longest, state);
}
