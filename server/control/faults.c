// See faults.h. Names are part of the operator's interface: added to, never changed.
//
//   faults		a list, the latest first
//     time_ms		milliseconds since the epoch
//     uid		null: nobody's programs were concerned
//     verdict		a sentence, as in the log

#include "server/control/faults.h"

#include <jansson.h>

#include "server/session/daemon.h"
#include "server/session/quota.h"

static json_t *fault_json(const struct fault *fault)
{
	return json_pack("{sI so ss}", "time_ms", (json_int_t)fault->time_ms, "uid",
		fault->uid == (uid_t)-1 ? json_null() : json_integer(fault->uid), "verdict", fault->verdict);
}

char *faults_json(const struct daemon *daemon, uid_t uid)
{
	bool all = quota_is_operator(uid);
	json_t *list = json_array(), *root;
	const struct fault *fault;
	char *text;

	TAILQ_FOREACH (fault, &daemon->faults, link)
		if (all || fault->uid == uid)
			json_array_append_new(list, fault_json(fault));
	root = json_pack("{so}", "faults", list);
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}
