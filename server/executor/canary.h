// The canary finds out if the device still begins new work. It asks only while a session waits for
// the device. Rules and measurements: canary.c.

#ifndef FRMPS_SERVER_EXECUTOR_CANARY_H
#define FRMPS_SERVER_EXECUTOR_CANARY_H

#include <stdbool.h>
#include <stdint.h>

#include "server/role.h"
#include "shm/order.h"

/* More than there are queues of the hardware. */
#define CANARY_STREAMS (HERITAGE_QUEUES + 2u)

struct backend_stream;
struct executor;
struct tenant;

/* Of an executor. */
struct canary {
	word32 wanted;	/* a session waits; serving threads set the word, the main thread clears it */
	word32 resting; /* the main thread does not look: a thread that wants a look kicks it */

	/* Main thread. */
	uint64_t patience_ns;				/* 0: there is no canary */
	struct backend_stream *streams[CANARY_STREAMS]; /* NULL until first needed */
	uint32_t at;					/* the stream of the latest beat */
	uint64_t sent;	   /* number of the latest beat, which the device writes */
	uint64_t seen;	   /* beats from here on prove that the device lives */
	uint64_t late_at;  /* ns: when the beat in flight counts as late; 0: none is in flight */
	uint64_t look_at;  /* ns */
	uint64_t progress; /* sum of all sessions' done commands at the latest look */
	bool told;
};

/** Begins to watch; the executor becomes the active one. Main thread. @patience_ms: 0: does not
 * watch */
void canary_begin(struct executor *executor, uint32_t patience_ms);
/** Gives the stream back; the backend is about to be closed. */
void canary_end(struct executor *executor);

/** Looks, and sends. Main thread. Return: when to call again, ns; UINT64_MAX: when a serving thread
 * wants a look. */
uint64_t canary_step(struct executor *executor, uint64_t now);

/** The session has had work on the device for a while, and has issued nothing new. Serving
 * thread. */
void canary_want(struct tenant *tenant);

#endif
