// See quarantine.h. Names are part of the operator's interface: added to, never changed.
//
//   quarantine_faults	number of faults from which a program gets executors of its own; 0: never
//   programs		a list, the program with the latest fault first
//     number		for `frmpsctl quarantine lift`
//     uid, program	program: executable, and the script of an interpreter
//     faults
//     quarantined	true: the program's next process gets an executor of its own
//     expires_seconds	until the faults are forgotten, without another fault

#include "server/control/quarantine.h"

#include <jansson.h>
#include <stdbool.h>

#include "server/config/config.h"
#include "server/control/document.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/fault_history.h"
#include "server/daemon/quota.h"

static json_t *history_json(const struct daemon *daemon, const struct fault_history *history)
{
	uint64_t most = daemon->config->quarantine_faults;
	uint64_t age_s = (timer_now_us() - history->latest_us) / 1000000;

	return json_pack("{sI sI ss sI sb sI}", "number", (json_int_t)history->number, "uid",
		(json_int_t)history->uid, "program", history->program, "faults", (json_int_t)history->faults,
		"quarantined", most && history->faults >= most, "expires_seconds",
		(json_int_t)(FAULT_HISTORY_SECONDS - age_s));
}

char *quarantine_json(struct daemon *daemon, uid_t uid)
{
	bool all = quota_is_operator(uid);
	json_t *programs = json_array();
	const struct fault_history *history;

	fault_history_expire(daemon);
	TAILQ_FOREACH (history, &daemon->fault_histories, link)
		if (all || history->uid == uid)
			json_array_append_new(programs, history_json(daemon, history));
	return document_text(json_pack("{sI so}", "quarantine_faults",
		(json_int_t)daemon->config->quarantine_faults, "programs", programs));
}
