// A service in one child process, for tests of the shim as a whole: daemon, executor and device at
// once. It keeps the contract of the ring strictly: sequence numbers without gaps, no more undone
// commands on a stream than the credit allows, and nothing counts as done before a mark was asked
// for. Device memory is memory of the child at the session's addresses, so copies and fills are
// real. Kernels and modules it does not have.
//
// One per test process; the test and the child share `loopback`.

#ifndef FRMPS_TESTS_UNIT_CLIENT_LOOPBACK_H
#define FRMPS_TESTS_UNIT_CLIENT_LOOPBACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shm/order.h"

#define LOOPBACK_NOTES 4096

/* A command as the child saw it. */
struct loopback_note {
	uint16_t op, flags;
	uint32_t stream;
	uint64_t seq;
	uint32_t other_stream; /* DEPEND */
	uint64_t other_seq;
	uint64_t part; /* of its stream */
};

/* The service takes no command from PAUSED on. */
enum loopback_pace { LOOPBACK_WORKS, LOOPBACK_IS_TO_PAUSE, LOOPBACK_PAUSED };

struct loopback {
	/* The test's wishes. */
	word32 mute;	      /* accept, but never answer */
	word32 deaths;	      /* hang up on that many clients that greet: their daemon has died */
	word32 pace;	      /* enum loopback_pace; shim_pause() */
	word32 out_of_memory; /* answer every mapping so */
	word64 fault;	      /* verdict to give: CUresult */
	word32 late;	      /* CUresult of a late error to report */
	word32 held;	      /* stop serving as in a promotion; when cleared, go on as the next generation */
	word64 room;	      /* device memory it gives at most */
	word64 arena_bytes;   /* staging memory of a session that is to begin */
	word64 window_at;     /* where the next further window is, free or not; 0: it has none any more */
	word32 no_units;      /* the device's multiprocessors cannot be split */
	word32 share;	      /* SHM_SHARE_*, from the session's start on */
	word32 slow_times;    /* 1: times of events are written when somebody asks for a wake-up; 2: never */

	word32 sm_percent;    /* of the latest Hello */
	word32 priority;      /* the same */
	word32 has_partition; /* the latest Hello names "p1" */
	word32 devices;	      /* that the service says it has; answers are those of each in turn */

	/* What happened. */
	word32 broken;		/* line of loopback.c where a rule was found broken, 0 = none */
	word32 count;		/* commands and directives so far, without padding */
	word64 mapped;		/* bytes of device memory mapped now */
	word32 maps;		/* mappings made so far */
	word32 handles;		/* of physical memory now */
	word32 windows;		/* further ones now, */
	word64 window_bytes;	/* the size of the latest, */
	word64 free_windows[7]; /* and what was free then */
	word32 greetings;
	word32 numbers;	     /* of the devices in the order in which they are asked, a hex digit each */
	word32 descriptions; /* given, counted before the answer */
	word32 welcomes;     /* given */
	word64 memory_limit; /* of the latest Hello */
	word32 limits;	     /* that were asked for */
	struct loopback_note notes[LOOPBACK_NOTES]; /* the first ones */
};

extern struct loopback *loopback;

/** Starts the child and sets FRMPS_SOCKET. Nothing is connected yet. */
void loopback_start(void);
/** Ends the child at once. */
void loopback_kill(void);
/** Ends the child and removes its socket. Return: false if it found a rule broken. */
bool loopback_stop(void);
/** Commands of an op seen so far; waits for none. */
unsigned int loopback_count(uint16_t op);

#endif
