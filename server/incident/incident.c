// See incident.h.

#include "server/incident/incident.h"

#define TAKEN INCIDENT_TAKEN
/* The losses of an executor that served, of the first executor before it served, and of an executor
 * during its take-over. */
#define LOSS	    (TAKEN | INCIDENT_BEGIN | INCIDENT_NEW)
#define FIRST_LOSS  (LOSS | INCIDENT_FELL_SHORT)
#define SECOND_LOSS (TAKEN | INCIDENT_CUT_SHORT | INCIDENT_BEGIN | INCIDENT_FELL_SHORT)
#define KILLED	    (TAKEN | INCIDENT_STOP | INCIDENT_HOLD)
#define REPLACED    (TAKEN | INCIDENT_JUDGE | INCIDENT_CHOOSE)

/* An event without an entry here has no meaning in that state. */
static const struct incident_step steps[INCIDENT_STATES][INCIDENT_EVENTS] =
	{
		[INCIDENT_VACANT] =
			{
				[INCIDENT_STANDBY] = {INCIDENT_STARTING, TAKEN | INCIDENT_ACTIVATE},
				[INCIDENT_RESUMED_WITHOUT] = {INCIDENT_VACANT, TAKEN},
			},
		[INCIDENT_STARTING] =
			{
				[INCIDENT_SIGN] = {INCIDENT_HALTING, FIRST_LOSS | INCIDENT_HALT},
				[INCIDENT_TERMINATED] = {INCIDENT_FENCING, FIRST_LOSS},
				[INCIDENT_REAPED] = {INCIDENT_VACANT, REPLACED},
				[INCIDENT_ACTIVATED] = {INCIDENT_SERVING, TAKEN | INCIDENT_SERVE},
				[INCIDENT_RESUMED_KILLED] = {INCIDENT_FENCING, LOSS},
				[INCIDENT_RESUMED_WITHOUT] = {INCIDENT_VACANT, TAKEN},
			},
		[INCIDENT_SERVING] =
			{
				[INCIDENT_SIGN] = {INCIDENT_HALTING, LOSS | INCIDENT_HALT},
				[INCIDENT_ENDLESS] = {INCIDENT_HALTING, LOSS | INCIDENT_HALT},
				[INCIDENT_TERMINATED] = {INCIDENT_FENCING, LOSS},
				[INCIDENT_REAPED] = {INCIDENT_VACANT, REPLACED},
				[INCIDENT_DISMISSED] = {INCIDENT_VACANT, TAKEN},
				[INCIDENT_RESUMED] = {INCIDENT_SERVING, TAKEN},
				[INCIDENT_RESUMED_KILLED] = {INCIDENT_FENCING, LOSS},
				[INCIDENT_RESUMED_WITHOUT] = {INCIDENT_VACANT, TAKEN},
			},
		[INCIDENT_HALTING] =
			{
				[INCIDENT_SIGN] = {INCIDENT_HALTING, TAKEN | INCIDENT_EXPLAIN},
				[INCIDENT_ANSWERED] = {INCIDENT_HALTED, TAKEN | INCIDENT_HOLD},
				[INCIDENT_TERMINATED] = {INCIDENT_FENCING, KILLED},
				[INCIDENT_REAPED] = {INCIDENT_LOST, REPLACED},
				/* Sending Halt again is harmless. */
				[INCIDENT_RESUMED] = {INCIDENT_HALTING, TAKEN | INCIDENT_HALT_AGAIN},
				[INCIDENT_RESUMED_KILLED] = {INCIDENT_FENCING, KILLED},
				[INCIDENT_RESUMED_WITHOUT] = {INCIDENT_LOST, TAKEN},
			},
		[INCIDENT_HALTED] =
			{
				[INCIDENT_SIGN] = {INCIDENT_HALTED, TAKEN | INCIDENT_EXPLAIN},
				[INCIDENT_STUCK] = {INCIDENT_LEAVING, TAKEN | INCIDENT_FENCE},
				[INCIDENT_DRAINED] = {INCIDENT_LOST, REPLACED | INCIDENT_STOP},
				[INCIDENT_TERMINATED] = {INCIDENT_FENCING, KILLED},
				[INCIDENT_REAPED] = {INCIDENT_LOST, REPLACED},
				[INCIDENT_RESUMED] = {INCIDENT_HALTING, TAKEN | INCIDENT_HALT_AGAIN},
				[INCIDENT_RESUMED_KILLED] = {INCIDENT_FENCING, KILLED},
				[INCIDENT_RESUMED_WITHOUT] = {INCIDENT_LOST, TAKEN},
			},
		[INCIDENT_LEAVING] =
			{
				[INCIDENT_SIGN] = {INCIDENT_LEAVING, TAKEN | INCIDENT_EXPLAIN},
				/* Of a Halt that another life of the daemon has sent. */
				[INCIDENT_ANSWERED] = {INCIDENT_LEAVING, TAKEN | INCIDENT_HOLD},
				/* Running work was cut, as at the end of a process, and nobody
				 * waits for the executor. */
				[INCIDENT_OFF_DEVICE] = {INCIDENT_FENCING, TAKEN | INCIDENT_STOP},
				[INCIDENT_TERMINATED] = {INCIDENT_FENCING, KILLED},
				[INCIDENT_REAPED] = {INCIDENT_LOST, REPLACED},
				/* The answer went to the daemon that had asked: the time limit
				 * passes. */
				[INCIDENT_RESUMED] = {INCIDENT_LEAVING, TAKEN | INCIDENT_HALT_AGAIN},
				[INCIDENT_RESUMED_KILLED] = {INCIDENT_FENCING, KILLED},
				[INCIDENT_RESUMED_WITHOUT] = {INCIDENT_LOST, TAKEN},
			},
		[INCIDENT_FENCING] =
			{
				[INCIDENT_REAPED] = {INCIDENT_LOST, REPLACED},
				[INCIDENT_RESUMED_KILLED] = {INCIDENT_FENCING, KILLED},
				[INCIDENT_RESUMED_WITHOUT] = {INCIDENT_LOST, TAKEN},
			},
		[INCIDENT_LOST] =
			{
				[INCIDENT_STANDBY] = {INCIDENT_TAKING_OVER, TAKEN | INCIDENT_ACTIVATE},
				[INCIDENT_RESUMED_WITHOUT] = {INCIDENT_LOST, TAKEN},
			},
		[INCIDENT_TAKING_OVER] =
			{
				[INCIDENT_SIGN] = {INCIDENT_HALTING, SECOND_LOSS | INCIDENT_HALT},
				[INCIDENT_TERMINATED] = {INCIDENT_FENCING, SECOND_LOSS},
				[INCIDENT_REAPED] = {INCIDENT_LOST, REPLACED},
				[INCIDENT_ACTIVATED] = {INCIDENT_SERVING,
					TAKEN | INCIDENT_REPORT | INCIDENT_SERVE},
				[INCIDENT_RESUMED_KILLED] = {INCIDENT_FENCING, TAKEN | INCIDENT_BEGIN},
				[INCIDENT_RESUMED_WITHOUT] = {INCIDENT_LOST, TAKEN},
			},
};

struct incident_step incident_step(enum incident_state state, enum incident_event event)
{
	struct incident_step step = steps[state][event];

	if (!step.actions)
		step.next = state;
	return step;
}

const char *incident_state_name(enum incident_state state)
{
	static const char *const names[] = {"vacant", "starting", "serving", "halting", "halted", "leaving",
		"fencing", "lost", "taking over"};

	return names[state];
}

const char *incident_event_name(enum incident_event event)
{
	static const char *const names[] = {"sign", "endless", "answered", "stuck", "off device", "drained",
		"terminated", "reaped", "dismissed", "standby", "activated", "resumed", "resumed, killed",
		"resumed without"};

	return names[event];
}

const char *incident_phase_name(enum incident_state state)
{
	if (incident_is_waiting(state))
		return "waiting";
	if (incident_is_activating(state))
		return "activating";
	if (incident_is_serving(state))
		return "steady";
	return incident_is_halting(state) ? "halting" : "fencing";
}
