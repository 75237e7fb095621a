// The gate in front of the device: for what stops the whole context (code and data that come onto
// the device or leave it) it lets what is on the device run out and keeps the rest waiting in the
// journals for as short as possible. The rules are in gate.c.
//
// One word says how far the gate is shut; serving threads look at it before each command, and write
// it back at the beginning of a turn, so that the module thread knows who goes by it already.

#ifndef FRMPS_SERVER_EXECUTOR_GATE_H
#define FRMPS_SERVER_EXECUTOR_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/order.h"

struct executor;
struct stream;
struct tenant;

/* A command that runs longer than this is long: nobody is made to wait for it. */
#define GATE_SHORT_NS (200 * CLOCK_US)
/* Closed for longer than this although something runs: what looked short was not, and all may go
 * on. */
#define GATE_CLOSED_NS CLOCK_MS
/* Lookups that wait are done in the same gap if they begin within this time. */
#define GATE_BATCH_NS (500 * CLOCK_US)

/* How long a try for a gap lasts, for a request and for what nobody waits for; and how long
 * commands may run at most that a request waits for, when it has waited for long. */
#define GATE_PATIENCE_NS      (UINT64_C(2000) * CLOCK_MS)
#define GATE_NOBODY_NS	      (50 * CLOCK_MS)
#define GATE_PATIENCE_MOST_NS (UINT64_C(16000) * CLOCK_MS)

enum gate_phase { GATE_OPEN, GATE_SHALLOW, GATE_LONG_FIRST, GATE_CLOSED };

/* What the module thread has seen of a stream since the gate was begun. */
struct gate_watch {
	uint64_t round;	 /* of which gate; of another: nothing was seen yet */
	uint64_t done;	 /* as last looked at */
	uint64_t since;	 /* ns: when its oldest unfinished command began, as far as seen; 0: nothing runs */
	bool whole;	 /* that beginning was seen */
	bool proven;	 /* one of its commands was seen from beginning to end */
	word64 duration; /* ns: of its last command, or what the present one has taken; serving threads read
			    it */
};

/* What runs for the longest time, when it was last looked at. */
struct gate_obstacle {
	uint64_t ns;
	char program[64];
	int32_t pid;
};

/* Of an executor. All zero: open. */
struct gate {
	word64 word;	  /* number of the change << 2 | phase */
	word64 threshold; /* ns: LONG_FIRST: streams with longer commands get none */

	/* Module thread. */
	uint64_t patience_ns; /* GATE_PATIENCE_NS, but for tests */
	uint64_t batch_ns;    /* how long a gap is used for lookups: GATE_BATCH_NS, but for tests */
	uint64_t round;
	uint64_t begun_at, changed_at, closed_at; /* ns; closed_at: when the device was idle */
	uint64_t asked_at;			  /* ns: when what the gate was begun for was asked for */
	uint64_t quiet_at; /* ns: nothing long is on the device since; 0: something is */
	struct gate_obstacle obstacle;
	bool closed;   /* the gap is there */
	bool pressing; /* what nobody waits for has the patience of a request (burial.c) */
};

/* Outcomes. But for GATE_E_WAIT the gate is open again. */
#define GATE_E_WAIT 1 /* look again */
#define GATE_E_LONG 2 /* what runs has taken too long (gate.obstacle): try again later */
#define GATE_E_GONE 3 /* the context or the requesting session has ended */
#define GATE_E_BUSY 4 /* others' requests come first */

void gate_init(struct executor *executor);

/**
 * Shuts the gate, waits until nothing is on the device, and leaves it closed. Module thread; at
 * once if it is closed already.
 * @tenant: on whose behalf; NULL: nobody's, then other requests come first
 * @asked_at: ns: since when it waits
 * Return: 0, GATE_E_LONG, GATE_E_GONE, GATE_E_BUSY (nobody's behalf only); or GATE_E_WAIT: others
 * wait, too, and what needs no gap may be done for them before this is called again; the gate stays
 * as it is.
 */
int gate_enter(struct executor *executor, struct tenant *tenant, uint64_t asked_at);
/** Closes the gate if nothing runs; others are stopped for GATE_CLOSED_NS at most if something does
 * after all. Module thread. Return: whether it is closed and nothing runs. */
bool gate_try(struct executor *executor);
/** Opens the gate. Module thread. */
void gate_leave(struct executor *executor);

/** The two halves of gate_enter(), for tests: time is the caller's. */
void gate_begin(struct executor *executor, uint64_t asked_at, uint64_t now);
int gate_step(struct executor *executor, struct tenant *tenant, uint64_t now);

/** Whether the stream's next command may go to the device. Serving thread. */
bool gate_admits(struct tenant *tenant, struct stream *stream);

static inline enum gate_phase gate_phase(const struct gate *gate)
{
	return (enum gate_phase)(word_relaxed(&gate->word) & 3);
}

static inline bool gate_is_shut(const struct gate *gate)
{
	return gate_phase(gate) != GATE_OPEN;
}

#endif
