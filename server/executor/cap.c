// See cap.h.
//
// Which ones. A group is some units that follow each other. Of each size there are as few places as cover the device, so that
// there are not many groups, and a session gets the place whose units are in the fewest groups of others. So sessions with half
// of the device each do not meet. Nobody has units for himself, and who is not capped runs everywhere.
//
// When. The backend makes a group in a gap (backend.h), as code is loaded. So the module thread makes what is wanted in the
// first gap that it has for anything, before it does what the gap is for: the first kernel of a session needs such a gap to be
// looked up, so the group of a new session is there before its first kernel is. For a session whose cap changes a gap is made.
// Until it is there, the session stays where it was. What the backend refuses, for memory may be short, is tried again in each
// gap that is made for something else.
//
// A group is never given back: there are some 50 at most, of 6 MiB each.

#include "server/executor/cap.h"

#include "server/executor/executor.h"
#include "server/executor/tenant.h"
#include "server/log.h"
#include "shm/layout.h"

enum { GROUP_WANTED, GROUP_MADE, GROUP_REFUSED };

void caps_init(struct caps *caps)
{
	pthread_mutex_init(&caps->lock, NULL);
}

void caps_deinit(struct caps *caps)
{
	pthread_mutex_destroy(&caps->lock);
}

/* ---- which ones; all under the lock ---- */

static void use(struct caps *caps, const struct cap_group *group, uint32_t sessions)
{
	for (uint32_t i = 0; group && i < BACKEND_SM_UNITS_MAX; i++)
		if (group->sms >> i & 1)
			caps->sessions[i] += sessions;
}

static uint32_t count_sessions(const struct caps *caps, uint32_t first, uint32_t units)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < units; i++)
		sum += caps->sessions[first + i];
	return sum;
}

static uint64_t choose(const struct caps *caps, uint32_t units, uint32_t all)
{
	uint32_t best = 0, least = UINT32_MAX;

	for (uint32_t place = 0; place < all; place += units) {
		uint32_t first = place < all - units ? place : all - units;
		uint32_t sessions = count_sessions(caps, first, units);

		if (sessions < least) {
			least = sessions;
			best = first;
		}
	}
	return BACKEND_SMS(best, units);
}

/* NULL: there are too many, which no device has. */
static struct cap_group *find_or_add(struct caps *caps, uint64_t sms)
{
	uint32_t i = 0;

	while (i < caps->count && caps->groups[i].sms != sms)
		i++;
	if (i < caps->count || i == BACKEND_SM_GROUPS_MAX)
		return i < caps->count ? &caps->groups[i] : NULL;
	caps->groups[i].sms = sms;
	caps->count++;
	atomic_fetch_add(&caps->wanted, 1);
	return &caps->groups[i];
}

static uint32_t units_of(const struct backend_device *device, uint32_t count)
{
	uint32_t units = device->sm_granule ? count / device->sm_granule : 0;

	return units < device->sm_units ? units : device->sm_units;
}

static void settle(struct tenant *tenant, uint32_t count)
{
	struct executor *executor = tenant->executor;
	struct caps *caps = &executor->caps;
	uint32_t units = units_of(&executor->device, count);

	pthread_mutex_lock(&caps->lock);
	use(caps, tenant->cap.group, UINT32_MAX); /* one less */
	tenant->cap.group = units ? find_or_add(caps, choose(caps, units, executor->device.sm_units)) : NULL;
	use(caps, tenant->cap.group, 1);
	pthread_mutex_unlock(&caps->lock);
	tenant->cap.count = count;
	if (word_relaxed(&caps->wanted))
		module_worker_wake(executor);
}

/* ---- sessions ---- */

static uint32_t count_of(const struct tenant *tenant)
{
	return (word_relaxed(&tenant->view.server->share) & SHM_SHARE_SMS_MASK) >> SHM_SHARE_SMS_SHIFT;
}

bool cap_is_due(const struct tenant *tenant)
{
	return count_of(tenant) != tenant->cap.count || tenant->cap.waits;
}

/* Pairs with the release in make(). */
static uint32_t state_of(const struct cap_group *group)
{
	return group ? word_acquire(&((struct cap_group *)group)->state) : GROUP_MADE;
}

static uint64_t sms_of(const struct cap_group *group)
{
	return group ? group->sms : 0;
}

void cap_look(struct tenant *tenant)
{
	uint32_t state;

	if (count_of(tenant) != tenant->cap.count)
		settle(tenant, count_of(tenant));
	state = state_of(tenant->cap.group);
	tenant->cap.waits = state != GROUP_MADE;
	if (state == GROUP_MADE)
		word_set(&tenant->sms, sms_of(tenant->cap.group));
}

uint64_t cap_sms(struct tenant *tenant)
{
	struct caps *caps = &tenant->executor->caps;
	const struct cap_group *group;

	pthread_mutex_lock(&caps->lock);
	group = tenant->cap.group;
	pthread_mutex_unlock(&caps->lock);
	return state_of(group) == GROUP_MADE ? sms_of(group) : word_relaxed(&tenant->sms);
}

void cap_leave(struct tenant *tenant)
{
	struct caps *caps = &tenant->executor->caps;

	pthread_mutex_lock(&caps->lock);
	use(caps, tenant->cap.group, UINT32_MAX);
	tenant->cap.group = NULL;
	pthread_mutex_unlock(&caps->lock);
}

/* ---- module thread ---- */

bool cap_waits(struct executor *executor)
{
	return word_relaxed(&executor->caps.wanted);
}

static void make(struct executor *executor, struct cap_group *group)
{
	bool wanted = word_relaxed(&group->state) == GROUP_WANTED;
	CUresult code = executor_code(executor, executor->ops->sms_make(group->sms));

	if (code && !group->told && !executor_is_lost(executor)) {
		log_error("%u multiprocessors of the device cannot be given to a program, which stays where "
			  "it is: code %d. It is tried again",
			BACKEND_SMS_UNITS(group->sms) * executor->device.sm_granule, (int)code);
		group->told = true;
	}
	word_release(&group->state, code ? GROUP_REFUSED : GROUP_MADE);
	if (wanted)
		atomic_fetch_sub(&executor->caps.wanted, 1);
}

static void make_all(struct executor *executor, bool again)
{
	struct caps *caps = &executor->caps;
	uint32_t count;

	pthread_mutex_lock(&caps->lock);
	count = caps->count;
	pthread_mutex_unlock(&caps->lock);
	for (uint32_t i = 0; i < count && !executor_is_lost(executor); i++) {
		uint32_t state = word_relaxed(&caps->groups[i].state);

		if (state == GROUP_WANTED || (again && state == GROUP_REFUSED))
			make(executor, &caps->groups[i]);
	}
}

void cap_make_wanted(struct executor *executor)
{
	if (cap_waits(executor))
		make_all(executor, false);
}

void cap_make_all(struct executor *executor)
{
	make_all(executor, true);
}
