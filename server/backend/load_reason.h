// Reasons why the driver loads a module (load_reason.def): that load waits for kernels that run,
// and a load by the service does not. Pure; any thread.

#ifndef FRMPS_SERVER_BACKEND_LOAD_REASON_H
#define FRMPS_SERVER_BACKEND_LOAD_REASON_H

#include <stdint.h>

enum load_reason {
	LOAD_REASON_NONE, /* the service loads the module */
#define REASON(name, text) LOAD_REASON_##name,
#include "server/backend/load_reason.def"
#undef REASON
	LOAD_REASONS
};

/** A clause, "" for none. @reason: any number */
const char *load_reason_text(uint64_t reason);

#endif
