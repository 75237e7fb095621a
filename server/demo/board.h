// State of the demo's programs in the view, and its text: a line for each. Pure: no process, no
// terminal and no clock.

#ifndef FRMPS_SERVER_DEMO_BOARD_H
#define FRMPS_SERVER_DEMO_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line of the table, with its end: no terminal has fewer columns. */
#define BOARD_COLUMNS 80u
/* Programs report each gap of a millisecond or more, so that these are at least the last eight
 * seconds. */
#define BOARD_GAPS 8192u

/* Times are those of CLOCK_MONOTONIC, in nanoseconds. */
struct board_gap {
	uint64_t from_ns, until_ns;
};

enum board_state { BOARD_STARTS, BOARD_RUNS, BOARD_FAULTS, BOARD_FAILED, BOARD_EXACT, BOARD_WRONG };

struct board_program {
	const char *name; /* borrowed */
	int pid;
	enum board_state state;
	uint64_t kernels;		   /* that have ended */
	double rate;			   /* of these, in a second */
	struct board_gap gaps[BOARD_GAPS]; /* the latest gaps between two ends of kernels, as a ring */
	size_t gap_count;		   /* of all so far */
	uint64_t fault_ns, error_ns;	   /* launch of the kernel that faults; first error. 0: not yet */
	int code;			   /* of that error */
	char error[64];			   /* name of the error */
	int exit_status;		   /* as in a shell; -1: the program has not ended */
};

/**
 * Reads a line of a program:
 *   did KERNELS FROM UNTIL   kernels so far, and the gap before the last one ended
 *   fault AT                 the next launch faults
 *   error AT CODE NAME       a call of the driver failed
 *   end exact|wrong          all data was compared
 * Return: false for any other line; the program is unchanged then.
 */
bool board_read(struct board_program *program, const char *line);

/**
 * Finds the pause of the crash: the longest gap that touches the time from the launch that faults
 * until its program gets the error.
 * Return: its length, ns; 0 if no gap of a millisecond or more touches that time.
 */
uint64_t board_pause_of(const struct board_program *program, const struct board_gap *crash);
/** Return: the longest gap that ended after a moment, ns; 0 if there was none of a millisecond or
 * more. */
uint64_t board_longest_since(const struct board_program *program, uint64_t moment_ns);

/** The heads of the columns: two lines, each with a newline. */
extern const char board_head[];
/**
 * Writes the program's line of the table, without an end of line: at most BOARD_COLUMNS - 1 bytes.
 * @crash: from the fault until the error; from_ns is 0 before the crash
 * @text: of BOARD_COLUMNS bytes
 */
void board_line(const struct board_program *program, const struct board_gap *crash, char *text);

#endif
