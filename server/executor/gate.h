// The gate in front of the device: for calls that stop the whole context (code and data that come
// onto the device or leave it) the gate lets the commands on the device run out. The rest waits in
// the journals, for as short as possible. The rules are in gate.c.
//
// A word has the phase of the gate; serving threads look at the word before each command, and write
// it back at the beginning of a turn, so that the module thread knows which threads obey already.

#ifndef FRMPS_SERVER_EXECUTOR_GATE_H
#define FRMPS_SERVER_EXECUTOR_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/order.h"

struct executor;
struct stream;
struct tenant;

/* A command that runs longer than this is long: no session is made to wait for its end. */
#define GATE_SHORT_NS (200 * CLOCK_US)
/* Closed for longer than this although a command runs: the command is not short as assumed, and all
 * may go on. */
#define GATE_CLOSED_NS CLOCK_MS
/* Lookups that wait are done in the same gap if they begin within this time. */
#define GATE_BATCH_NS (500 * CLOCK_US)

/* The duration of a try for a gap, for a request and for deferred work; and the longest run time of
 * commands that a request tolerates after a long wait. */
#define GATE_PATIENCE_NS      (UINT64_C(2000) * CLOCK_MS)
#define GATE_NOBODY_NS	      (50 * CLOCK_MS)
#define GATE_PATIENCE_MOST_NS (UINT64_C(16000) * CLOCK_MS)

/* Deferred work waits so long for a moment when nothing runs; then the gate makes a gap for it. */
#define GATE_DEFER_NS (UINT64_C(5000) * CLOCK_MS)

enum gate_phase { GATE_OPEN, GATE_SHALLOW, GATE_LONG_FIRST, GATE_CLOSED };

/* The module thread's observations of a stream since the gate was begun. */
struct gate_watch {
	uint64_t round;	 /* number of the gate; another number: nothing was seen yet */
	uint64_t done;	 /* as last looked at */
	uint64_t since;	 /* ns: seen begin of the oldest unfinished command; 0: nothing runs */
	bool whole;	 /* that beginning was seen */
	bool proven;	 /* a command was seen from beginning to end */
	word64 duration; /* ns: of its last command, or what the present one has taken; serving threads read
			    it */
};

/* The longest running command at the last look. */
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
	uint64_t asked_at;			  /* ns: start of the wait of the gate's request */
	uint64_t quiet_at; /* ns: no long command on the device since; 0: there is one */
	struct gate_obstacle obstacle;
	bool closed;   /* the gap is there */
	bool pressing; /* deferred work has the patience of a request (deferred.c) */
};

/* Outcomes. But for GATE_E_WAIT the gate is open again. */
#define GATE_E_WAIT 1 /* look again */
#define GATE_E_LONG 2 /* what runs has taken too long (gate.obstacle): try again later */
#define GATE_E_GONE 3 /* the context or the requesting session has ended */
#define GATE_E_BUSY 4 /* others' requests come first */

void gate_init(struct executor *executor);

/**
 * Shuts the gate, waits until nothing is on the device, and leaves the gate closed. Module thread;
 * at once if closed already.
 * @tenant: the requesting session; NULL: deferred work, then other requests come first
 * @asked_at: ns: start of the wait
 * Return: 0, GATE_E_LONG, GATE_E_GONE, GATE_E_BUSY (@tenant NULL only); or GATE_E_WAIT: other
 * requests wait, too, and those without need of a gap may be done before the next call; the gate
 * stays as it is.
 */
int gate_enter(struct executor *executor, struct tenant *tenant, uint64_t asked_at);
/** Closes the gate if nothing runs; stops others for GATE_CLOSED_NS at most if a command runs after
 * all. Module thread. Return: true if closed and nothing runs. */
bool gate_try(struct executor *executor);
/** Opens the gate. Module thread. */
void gate_leave(struct executor *executor);

/** The two halves of gate_enter(), for tests: the caller gives the time. */
void gate_begin(struct executor *executor, uint64_t asked_at, uint64_t now);
int gate_step(struct executor *executor, struct tenant *tenant, uint64_t now);

/** Return: true if the stream's next command may go to the device. Serving thread. */
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
