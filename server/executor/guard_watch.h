// The watch over the sinks of guards (guard.h): finds guard hits, writes of kernels beside their
// memory, and tells their sessions. guard_watch.c has the times of the looks.

#ifndef FRMPS_SERVER_EXECUTOR_GUARD_WATCH_H
#define FRMPS_SERVER_EXECUTOR_GUARD_WATCH_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct backend_stream;
struct executor;
struct tenant;

/* Of a session. */
struct guard_use {
	/* Serving thread. */
	word64 launches; /* kernels given to the device; released behind the stream's `issued` word */
	word32 asked;	 /* the client waits for its work: a look is due at its end */

	/* Main thread writes, serving thread reads. */
	word32 verdict; /* CUresult, 0: none; released behind `reason` */
	char reason[240];

	/* Main thread. */
	uint64_t seen;	    /* launches as last sampled */
	uint64_t fill;	    /* number of a mark behind the latest filling and all unmarked work; 0: none */
	uint64_t looked_at; /* ns: begin of the last look */
	uint64_t clean_at;  /* ns: the latest filling, or look at an unchanged sink */
	uint64_t told_at;   /* ns: last report about the sink */
	bool busy;	    /* had work on the device at the last sample */
	bool ran;	    /* a kernel may have run since the latest filling or look began */
	bool filled;
	bool last_look; /* the session ends, and gets a last look */
	bool tried;	/* that look was begun */
	bool abandoned; /* work of ours on its sink does not end: it stays mapped as long as this process
			   lives */
	bool left;	/* the session's end has been noted */
};

enum guard_look { LOOK_NONE, LOOK_CHECKING, LOOK_READING };

/* Of an executor: one look at a time. Main thread, but for the words. */
struct guard_watch {
	/* Serving threads read this line for every kernel and every wait; the rest changes with
	 * every look. */
	_Alignas(SHM_LINE) word64 open_at; /* ns: from here on a look may be asked for */
	word32 resting; /* nothing has happened for a while: a thread that launches wakes the watch */

	_Alignas(SHM_LINE) struct backend_stream *stream; /* NULL until a guard is opened */
	/* Granules of all guards; the module thread subtracts those of sessions that end. */
	_Atomic uint32_t mapped;
	struct guard_page *page; /* registered */
	enum guard_look look;
	struct tenant *tenant; /* owner of the sink under the present look; a reference */
	uint64_t begun_at;     /* ns */
	uint64_t mark;	       /* value of the page's mark when the device is done */
	uint64_t unmarked;     /* number of the mark behind the latest check without a mark of its own */
	uint64_t moved,
		moved_at; /* the page's mark when the device was last seen to go on (ns) with work of ours */
	bool alone;	  /* all checks before this look had given their answers at its begin */
	uint64_t interval_ns;
	uint32_t offset;  /* of the piece that is being read, from the guard's home */
	uint64_t rest_at; /* ns: when resting, another look then */
};

static_assert(offsetof(struct guard_watch, stream) == SHM_LINE, "what is read for every kernel is apart");

/** Makes the watch ready for a guard. Main thread. Return: CUDA_SUCCESS, the backend's code. */
CUresult guard_watch_open(struct executor *executor, uint32_t interval_ms);
/** Frees the watch; the backend is about to be closed. */
void guard_watch_close(struct executor *executor);

/** Fills the sink of a session that has a guard and is served. Earlier guard hits are lost. Main
 * thread. */
void guard_watch_begin(struct tenant *tenant);
/** Return: false while a filling is under way: guard hits before its end would be lost, and the
 * sink may not be removed. True without a guard, or if the session is not served. Main thread. */
bool guard_watch_is_ready(const struct tenant *tenant);

/** Begins and ends looks. Main thread. Return: when to call again, ns; UINT64_MAX: when something
 * happens. */
uint64_t guard_watch_step(struct executor *executor, uint64_t now);

/**
 * Takes the last look at a session whose work has ended and that is about to be torn down. Main
 * thread, again and again until true. Return: true if no look at the session's sink is left.
 */
bool guard_watch_last_look(struct tenant *tenant, uint64_t since);

/** The session goes on in another executor: there are no more looks at its sink here. Main
 * thread. */
void guard_watch_let_go(struct tenant *tenant);

/** Ends the session if its guard was hit. Serving thread, every turn. */
void guard_watch_sentence(struct tenant *tenant);
/** The client waits for its work. Serving thread. */
void guard_watch_note_wait(struct tenant *tenant);
/** Notes a kernel that is about to be issued; the stream's `issued` word includes the kernel
 * already. Serving thread. */
void guard_watch_note_launch(struct tenant *tenant);

#endif
