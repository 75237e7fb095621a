// The rows of counters.def as a struct.

#ifndef FRMPS_SERVER_SESSION_COUNTERS_H
#define FRMPS_SERVER_SESSION_COUNTERS_H

#include <stdint.h>

struct counters {
#define COUNTER(name, help) uint64_t name;
#include "server/session/counters.def"
#undef COUNTER
};

#endif
