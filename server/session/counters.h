// The rows of counters.def as a struct, and a count for each kind of event.

#ifndef FRMPS_SERVER_SESSION_COUNTERS_H
#define FRMPS_SERVER_SESSION_COUNTERS_H

#include <stdint.h>

#include "server/session/events.h"

struct counters {
#define COUNTER(name, help) uint64_t name;
#include "server/session/counters.def"
#undef COUNTER
	uint64_t events[EVENT_KINDS];
};

#endif
