// See faults.h.

#include "server/session/faults.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/log.h"
#include "server/session/daemon.h"

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
