// See session_evidence.h.

#include "server/incident/session_evidence.h"
#include "server/incident/in_flight.h"

#include <stdlib.h>

void session_evidence_forget_losses(struct session_evidence *evidence)
{
	in_flight_deinit(&evidence->common);
	evidence->losses = 0;
}

void session_evidence_forget_looks(struct session_evidence *evidence)
{
	free(evidence->limit_looks);
	evidence->limit_looks = NULL;
	evidence->limit_look_count = 0;
}
