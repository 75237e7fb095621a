// See faults.h.

#include "server/session/faults.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/adopt/records.h"
#include "server/adopt/store.h"
#include "server/log.h"
#include "server/session/daemon.h"

static void let_go(struct daemon *daemon, struct fault *fault)
{
	TAILQ_REMOVE(&daemon->faults, fault, link);
	free(fault->verdict);
	free(fault);
}

static void forget(struct daemon *daemon, struct fault *fault)
{
	store_drop(daemon->store, fault->record);
	let_go(daemon, fault);
}

void faults_deinit(struct daemon *daemon)
{
	while (!TAILQ_EMPTY(&daemon->faults))
		let_go(daemon, TAILQ_FIRST(&daemon->faults));
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

static struct fault *begin(struct daemon *daemon, int64_t time_ms, uid_t uid, const char *verdict)
{
	struct fault *fault = calloc(1, sizeof(*fault));

	log_bug_on(!fault);
	*fault = (struct fault){.time_ms = time_ms, .uid = uid, .verdict = strdup(verdict)};
	log_bug_on(!fault->verdict);
	/* Names of kernels and programs are theirs. */
	log_clean(fault->verdict);
	TAILQ_INSERT_HEAD(&daemon->faults, fault, link);
	return fault;
}

static void keep(struct daemon *daemon, struct fault *fault)
{
	const struct kept_fault kept = {.time_ms = fault->time_ms, .uid = (int64_t)fault->uid};
	size_t length = strlen(fault->verdict) + 1;
	char *payload = malloc(sizeof(kept) + length);

	log_bug_on(!payload);
	memcpy(payload, &kept, sizeof(kept));
	memcpy(payload + sizeof(kept), fault->verdict, length);
	fault->record = store_put(daemon->store, NULL, RECORD_FAULT, store_serial(daemon->store), payload,
		sizeof(kept) + length);
	free(payload);
}

int64_t faults_note(struct daemon *daemon, uid_t uid, const char *verdict)
{
	struct timespec now;
	struct fault *fault;

	clock_gettime(CLOCK_REALTIME, &now);
	make_room(daemon, uid);
	fault = begin(daemon, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, uid, verdict);
	keep(daemon, fault);
	return fault->time_ms;
}

void faults_adopt(struct daemon *daemon, const struct record *record)
{
	struct kept_fault kept;
	size_t bytes;
	const char *payload = record_payload(record, &bytes);

	log_bug_on(!record_read(record, &kept, sizeof(kept)) || payload[bytes - 1]);
	begin(daemon, kept.time_ms, (uid_t)kept.uid, payload + sizeof(kept))->record = record;
}
