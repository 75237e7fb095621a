// The incident of a domain: the states from the first sign of a loss of the active executor to the
// moment at which the next executor serves. Pure: incident.c has the table of all steps, promote.c
// carries the actions out.
//
//          a standby             Activate
//          is warm               is answered
//   VACANT ─────────► STARTING ──────────────► SERVING
//                        │                        │
//                 a sign │                        │ a sign, work that does not end
//                        └───────────┬────────────┘
//                                    ▼          Halt is answered
//             ┌──────────────────► HALTING ──────────────────────────────────────► HALTED
//             │ a sign                                                              │  │
//             │                        nothing of a survivor is left on the device  │  │ something does not end,
//             │                   ┌─────────────────────────────────────────────────┘  ▼ or is to be cut
//             │                   ▼     reaped              off the device          LEAVING
//             │                 LOST ◄────────── FENCING ◄─────────────────────────────┘
//             │                   │ a standby is warm
//             │                   ▼
//             └────────────── TAKING_OVER ───────────────► SERVING
//                                         Activate is answered
//
// Besides: where the active executor is killed, FENCING follows on any state; where the process is
// gone, LOST follows, or VACANT if there was no incident. An executor that serves and is dismissed
// leaves VACANT behind: that is no loss. A daemon that comes back goes on from the state that was
// recorded.

#ifndef FRMPS_SERVER_INCIDENT_INCIDENT_H
#define FRMPS_SERVER_INCIDENT_INCIDENT_H

#include <stdbool.h>

enum incident_state {
	/* No incident. */
	INCIDENT_VACANT,   /* no executor is active; the next standby that is warm becomes the active one */
	INCIDENT_STARTING, /* Activate was sent to that standby */
	INCIDENT_SERVING,  /* the active executor serves */
	/* An incident. */
	INCIDENT_HALTING,     /* Halt was sent to the active executor, which lives; commands that were
			       * issued end */
	INCIDENT_HALTED,      /* Halt was answered: the executor issues nothing more */
	INCIDENT_LEAVING,     /* the executor is asked to take itself off the device */
	INCIDENT_FENCING,     /* killed and not reaped yet: the executor's work may still write */
	INCIDENT_LOST,	      /* the executor is out of the way and judged; the next standby that is warm
			       * takes over */
	INCIDENT_TAKING_OVER, /* Activate was sent to the standby */
	INCIDENT_STATES
};

enum incident_event {
	INCIDENT_SIGN,	     /* the active executor shows a sign of a fault, or is silent, and lives */
	INCIDENT_ENDLESS,    /* the executor is to be replaced, for work of a program that does not end */
	INCIDENT_ANSWERED,   /* Halt was answered */
	INCIDENT_STUCK,	     /* work on the device does not end, or is to be cut */
	INCIDENT_OFF_DEVICE, /* the executor has left the device */
	INCIDENT_DRAINED,    /* nothing of a survivor is on the device, and more will not be known */
	INCIDENT_TERMINATED, /* the executor was killed */
	INCIDENT_REAPED,     /* the executor's process is gone */
	INCIDENT_DISMISSED, /* nothing is on the device, and the executor is to end (daemon/device_drain.h) */
	INCIDENT_STANDBY,   /* a standby is warm */
	INCIDENT_ACTIVATED, /* Activate was answered */
	/* An earlier life of the daemon had recorded the state. */
	INCIDENT_RESUMED,	  /* the active executor is there */
	INCIDENT_RESUMED_KILLED,  /* the executor was killed in that life */
	INCIDENT_RESUMED_WITHOUT, /* there is none */
	INCIDENT_EVENTS
};

/* The actions, in the order in which the daemon takes them. */
enum incident_action {
	INCIDENT_TAKEN = 1 << 0,     /* the event means something in this state; without it nothing is done */
	INCIDENT_CUT_SHORT = 1 << 1, /* reports the loss before this one: its next executor did not get to
				  * serve */
	INCIDENT_JUDGE = 1 << 2,     /* the domain has no active executor any more; attribute() */
	/* Here the state changes. */
	INCIDENT_BEGIN = 1 << 3, /* an executor is lost: calls moves off, holds the sessions */
	INCIDENT_NEW = 1 << 4,	 /* with BEGIN: the time counts from now on, and not from a loss before */
	INCIDENT_FELL_SHORT = 1 << 5, /* with BEGIN: Activate had not been answered */
	INCIDENT_STOP = 1 << 6,	      /* work on the device is not polled any more */
	INCIDENT_HOLD = 1 << 7,	      /* holds the sessions once more: the executor has written their words
				       * since */
	INCIDENT_HALT = 1 << 8,	      /* sends Halt, and polls the work on the device */
	INCIDENT_HALT_AGAIN = 1 << 9, /* the same, with the time that is left */
	INCIDENT_EXPLAIN = 1 << 10,   /* the sign is the cause from now on */
	INCIDENT_FENCE = 1 << 11,     /* asks the executor to leave the device */
	INCIDENT_CHOOSE = 1 << 12,    /* a standby that is warm takes over at once */
	INCIDENT_ACTIVATE = 1 << 13,  /* sends Activate */
	INCIDENT_REPORT = 1 << 14,    /* the incident is over: reports the incident */
	INCIDENT_SERVE = 1 << 15,     /* sessions go on */
};

struct incident_step {
	enum incident_state next;
	unsigned actions; /* of enum incident_action; 0: the event means nothing in this state, which stays */
};

struct incident_step incident_step(enum incident_state state, enum incident_event event);

const char *incident_state_name(enum incident_state state);
const char *incident_event_name(enum incident_event event);
/** The state in a word for operators: waiting, activating, steady, halting, fencing. */
const char *incident_phase_name(enum incident_state state);

/** No executor is active, and the next standby will be. */
static inline bool incident_is_waiting(enum incident_state state)
{
	return state == INCIDENT_VACANT || state == INCIDENT_LOST;
}

/** An executor has Activate to answer. */
static inline bool incident_is_activating(enum incident_state state)
{
	return state == INCIDENT_STARTING || state == INCIDENT_TAKING_OVER;
}

static inline bool incident_is_serving(enum incident_state state)
{
	return state == INCIDENT_SERVING;
}

/** The active executor lives and is to issue nothing more; the daemon polls its work on the
 * device. */
static inline bool incident_is_halting(enum incident_state state)
{
	return state == INCIDENT_HALTING || state == INCIDENT_HALTED || state == INCIDENT_LEAVING;
}

#endif
