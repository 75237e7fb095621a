// See load_reason.h.

#include "server/backend/load_reason.h"

const char *load_reason_text(uint64_t reason)
{
	static const char *const texts[LOAD_REASONS] = {
		"",
#define REASON(name, text) text,
#include "server/backend/load_reason.def"
#undef REASON
	};

	return reason < LOAD_REASONS ? texts[reason] : "";
}
