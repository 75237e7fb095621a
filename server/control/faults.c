// See faults.h. Names are part of the operator's interface: added to, never changed.
//
//   faults		a list, the latest first
//     time_ms		milliseconds since the epoch
//     uid		null: nobody's programs were concerned
//     verdict		a sentence, as in the log

#include "server/control/faults.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/log.h"
#include "server/session/daemon.h"
#include "server/session/quota.h"

struct fault {
	TAILQ_ENTRY(fault) link;
	int64_t time_ms;
	uid_t uid;
	char *verdict;
};

static void forget(struct daemon *daemon, struct fault *fault)
{
	TAILQ_REMOVE(&daemon->faults, fault, link);
	free(fault->verdict);
	free(fault);
}

void faults_deinit(struct daemon *daemon)
{
	while (!TAILQ_EMPTY(&daemon->faults))
		forget(daemon, TAILQ_FIRST(&daemon->faults));
}

/* Makes room for one more of this user. */
static void make_room(struct daemon *daemon, uid_t uid)
{
	struct fault *fault, *oldest = NULL;
	unsigned count = 0, of_user = 0;

	TAILQ_FOREACH (fault, &daemon->faults, link) {
		count++;
		if (fault->uid != uid)
			continue;
		of_user++;
		oldest = fault;
	}
	if (of_user >= FAULTS_PER_USER)
		forget(daemon, oldest);
	else if (count >= FAULTS_MAX)
		forget(daemon, TAILQ_LAST(&daemon->faults, fault_list));
}

int64_t faults_note(struct daemon *daemon, uid_t uid, const char *verdict)
{
	struct fault *fault = calloc(1, sizeof(*fault));
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	log_bug_on(!fault);
	*fault = (struct fault){
		.time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000,
		.uid = uid,
		.verdict = strdup(verdict),
	};
	log_bug_on(!fault->verdict);
	/* Names of kernels and programs are theirs. */
	log_clean(fault->verdict);
	make_room(daemon, uid);
	TAILQ_INSERT_HEAD(&daemon->faults, fault, link);
	return fault->time_ms;
}

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
