// Times of events, from a driver that reports only the distance of two events, as a binary32 of
// milliseconds. That is exact to the nanosecond for a few milliseconds, and wrong by 6e-8 of
// anything longer: 1 µs after 16 s, 4 ms after a day. So a chain of bases is recorded, events of
// our own:
//
//   base ──elapsed──► base ──elapsed──► base ◄──elapsed── an event of a program
//                                        ▲
//                                        └──elapsed── before · stamp · behind
//
// Each event is counted from a base that was recorded at most TICKS_PERIOD_NS before, if programs
// record events that often, and else right after the event. Distances on the chain (`local`) are
// the driver's own. A stamp gives the chain's place on the device's timer (`device`), on which
// contexts of all processes agree: a kernel reads the timer between two more events, so a stamp is
// exact to half of their distance. Links of more than some milliseconds are rounded; the possible
// errors are added up, and beyond TICKS_ERROR_NS another stamp is taken. The chain itself is never
// corrected: only `device` moves, by that error. A time with a possible error above TICKS_KNOWN_NS
// is unknown.
//
// A kernel may have to wait for others that fill the device. So stamps have a stream of their own.
//
// Owns nothing. The caller locks.

#ifndef FRMPS_SERVER_BACKEND_TICKS_H
#define FRMPS_SERVER_BACKEND_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"

/* Up to here a binary32 of milliseconds gives each nanosecond. */
#define TICKS_PERIOD_NS (UINT64_C(4) * 1000 * 1000)
#define TICKS_ERROR_NS	1000.0
#define TICKS_KNOWN_NS	20000.0
/* Time limit for a stamp, and pause before the next stamp. */
#define TICKS_STAMP_NS (UINT64_C(100) * 1000 * 1000)

/* The events of a source: two bases, and those around a stamp. */
enum ticks_event { TICKS_EVENT_A, TICKS_EVENT_B, TICKS_EVENT_BEFORE, TICKS_EVENT_BEHIND, TICKS_EVENTS };

struct ticks_source {
	/* Records a base, without waiting. */
	CUresult (*record)(enum ticks_event event);
	/* Records an event, has the device's timer read, and records another event; without
	 * waiting. */
	CUresult (*stamp)(void);
	/* The timer's value, ns; valid after TICKS_EVENT_BEHIND. */
	uint64_t (*stamped)(void);
	/* As the driver: CUDA_ERROR_NOT_READY while either is missing. */
	CUresult (*between)(enum ticks_event from, enum ticks_event to, float *ret_ms);
	CUresult (*since)(enum ticks_event from, struct backend_event *to, float *ret_ms);
};

enum ticks_state {
	TICKS_NEW,	/* there is no base */
	TICKS_BEGUN,	/* the first base is recorded */
	TICKS_SETTLED,	/* `base` is there */
	TICKS_EXTENDED, /* `base` has arrived, the next is recorded */
};

struct ticks {
	const struct ticks_source *source;
	enum ticks_state state;
	enum ticks_event base;
	bool stamping;	     /* a stamp is under way */
	bool stamped;	     /* there was a stamp */
	int64_t local;	     /* ns: of the base */
	int64_t offset;	     /* ns: from there to the device's timer */
	double width, drift; /* ns: possible error, at the stamp and since */
	uint64_t recorded_at, stamped_at;
};

void ticks_init(struct ticks *ticks, const struct ticks_source *source);

/**
 * A timed event was recorded, or is about to be: records a base if the latest base is too old for
 * the event.
 * @now: monotonic ns
 */
void ticks_note(struct ticks *ticks, uint64_t now);

/** Takes a stamp. CUDA_ERROR_NOT_READY: a stamp is under way. */
CUresult ticks_stamp(struct ticks *ticks, uint64_t now);

/** Goes on to the base that was recorded last, and takes over a stamp that is there.
 * CUDA_ERROR_NOT_READY: the base is not there yet. */
CUresult ticks_settle(struct ticks *ticks);

/** True if times on the device's timer are known well enough. */
bool ticks_is_known(const struct ticks *ticks);

/**
 * The time of an event.
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_READY: the event has not happened, or a base or a stamp for
 * an exact time is on its way; or an error of the driver
 */
CUresult ticks_time(
	struct ticks *ticks, struct backend_event *event, uint64_t now, struct backend_time *ret_time);

#endif
