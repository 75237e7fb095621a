// Guard hits (strays): writes of kernels beside their memory, into the sinks of a guard (guard.h).
// stray.c has the times of the looks, suspect.h the attribution.

#ifndef FRMPS_SERVER_EXECUTOR_STRAY_H
#define FRMPS_SERVER_EXECUTOR_STRAY_H

#include <assert.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct backend_stream;
struct executor;
struct tenant;

/* Of a session. */
struct stray {
	/* Serving thread. */
	word64 launches; /* kernels given to the device; released behind the stream's `issued` word */
	word32 asked;	 /* the client waits for its work: a look is due at its end */

	/* Main thread writes, serving thread reads. */
	word32 verdict; /* CUresult, 0: none; released behind `reason` */
	char reason[240];

	/* Main thread. A sample notes for every session if a kernel may have run; samples are
	 * numbered. */
	uint64_t seen;	    /* launches as last sampled */
	uint64_t ran;	    /* the last sample since whose predecessor a kernel may have run */
	uint64_t clean;	    /* the sinks were seen unchanged behind this sample; 0: not filled yet */
	uint64_t fill;	    /* number of a mark behind the latest filling and all unmarked work; 0: none */
	uint64_t looked_at; /* ns: begin of the last look */
	uint64_t clean_at;  /* ns: the latest look at unchanged sinks */
	uint64_t told_at;   /* ns: last report about the sinks */
	bool busy;	    /* had work on the device at the last sample */
	bool convicted;
	bool last_look; /* the session ends, and gets a last look */
	bool tried;	/* that look was begun */
	bool abandoned; /* work of ours on its sinks does not end: they stay mapped as long as this process
			   lives */
	bool left;	/* the session's end has been noted */
};

/* More than a domain has. */
#define STRAY_FORMERS_MAX 16u

enum stray_state { STRAY_IDLE, STRAY_LOOKING, STRAY_READING };

/* Of an executor: one look at a time. Main thread, but for the words. */
struct stray_watch {
	/* Serving threads read this line for every kernel and every wait; the rest changes with
	 * every look. */
	_Alignas(SHM_LINE) word64 open_at; /* ns: from here on a look may be asked for */
	word32 resting; /* nothing has happened for a while: a thread that launches wakes the watch */

	_Alignas(SHM_LINE) struct backend_stream *stream; /* NULL until a guard is opened */
	/* Slots of all guards; the module thread subtracts the slots of sessions that end. */
	_Atomic uint32_t slots;
	struct stray_page *page; /* registered */
	enum stray_state state;
	struct tenant *tenant; /* owner of the sinks under the present look; a reference */
	uint64_t sample;       /* number of the latest */
	uint64_t begun;	       /* number of the sample behind which this look began */
	uint64_t begun_at;     /* ns */
	uint64_t mark;	       /* value of the page's mark when the device is done */
	uint64_t unmarked;     /* number of the mark behind the latest check without a mark of its own */
	uint64_t moved,
		moved_at; /* the page's mark when the device was last seen to go on (ns) with work of ours */
	bool alone;	  /* all checks before this look had given their answers at its begin */
	uint64_t interval_ns;
	uint64_t departed; /* the last sample with a kernel of no session, or of a former session */
	struct pollfd
		formers[STRAY_FORMERS_MAX]; /* pidfds of executors with the same sinks; -1: not visible */
	uint32_t former_count;
	uint64_t step_at; /* ns: not before: the next slots are mapped */
	uint32_t offset;  /* of the piece that is being read, from the guard's home */
	uint64_t rest_at; /* ns: when resting, another look then */
};

static_assert(offsetof(struct stray_watch, stream) == SHM_LINE, "what is read for every kernel is apart");

/** Makes the watch ready for a guard. Main thread. Return: CUDA_SUCCESS, the backend's code. */
CUresult stray_open(struct executor *executor, uint32_t interval_ms);
/** Frees the watch; the backend is about to be closed. */
void stray_close(struct executor *executor);

/** Fills the sinks of a session that has a guard and is served. Earlier guard hits are lost. Main
 * thread. */
void stray_begin(struct tenant *tenant);
/** Return: false while a filling is under way: guard hits before its end would be lost, and the
 * sinks may not be removed. True without a guard, or if the session is not served. Main thread. */
bool stray_is_ready(const struct tenant *tenant);

/** Maps slots, begins and ends looks. Main thread. Return: when to call again, ns; UINT64_MAX: when
 * something happens.
 */
uint64_t stray_step(struct executor *executor, uint64_t now);

/**
 * Takes the last look at a session whose work has ended and that is about to be torn down. Main
 * thread, again and again until true. Return: true if no look at the session's sinks is left.
 */
bool stray_farewell(struct tenant *tenant, uint64_t since);

/** The session goes on in another executor: the contents of the sinks prove nothing here from now
 * on. Main thread.
 */
void stray_let_go(struct tenant *tenant);

/** The client waits for its work. Serving thread. */
void stray_note_wait(struct tenant *tenant);
/** Notes a kernel that is about to be issued; the stream's `issued` word includes the kernel
 * already. Serving thread.
 */
void stray_note_launch(struct tenant *tenant);

#endif
