// The rows of counters.def as a struct, and a count for each kind of event and for each reason why
// the driver loads a module.

#ifndef FRMPS_SERVER_SESSION_COUNTERS_H
#define FRMPS_SERVER_SESSION_COUNTERS_H

#include <stdint.h>

#include "server/backend/load_reason.h"
#include "server/session/events.h"

struct counters {
#define COUNTER(name, help) uint64_t name;
#include "server/session/counters.def"
#undef COUNTER
	uint64_t events[EVENT_KINDS];
	uint64_t driver_loads[LOAD_REASONS]; /* 0 of LOAD_REASON_NONE */
};

#endif
