// See cap.h.
//
// Choice of units. A session that is capped gets consecutive units. Of each size there are as few
// places as cover the units that the session may use, so that there are not many groups. The
// session gets the place whose units are in the fewest groups of others. So sessions with half of
// the device each do not meet.
//
// Partitions. A session with a partition runs on the units of that alone, and keeps all sessions
// without a partition off these units: those sessions run on the units that no partition keeps. The
// partition is kept while the session has work, and for CAP_LEND_NS after that. Then the session
// lends the units: the others run there as well. The session's next command takes the units back:
// at their next turn the others go on elsewhere, and their commands on the device end where they
// are. Sessions of a partition share the units. An executor keeps no unit for a session of another
// executor: the device runs contexts in turn.
//
// Classes. A kernel that runs is not interrupted, so holding an offline session back (share.c) is
// not enough for an online session that comes while the other's kernel fills the device. While an
// online session has work, and for CAP_LEND_NS after that, offline sessions leave the last quarter
// of the units free (SHM_SHARE_ONLINE_PART): an online kernel finds room at once. Online sessions
// run everywhere; nothing is left free for an online session with a partition. Nothing of this
// happens where no session has a weight or class of its own.
//
// Without a cap, and while no unit is kept, a session runs everywhere.
//
// Time of creation. The backend makes a group in a gap (backend.h), as a driver loads code. So the
// module thread makes wanted groups in the first gap that comes for any reason, before the work
// that the gap is for. Where nothing else needs a gap, the module thread makes a gap for the
// groups. Until the group exists, the session stays where it was. A group that the backend refuses,
// for memory may be short, is tried again in each gap that is made for another reason.
//
// Parts. A stream of a program's green context has a part of the session's multiprocessors, by
// their order in what the session has: where the session moves, its parts move along. The stream
// waits until the part's group is made, and does without where the backend refuses the group.
//
// A group has 6 MiB and is never given back. Caps alone need some 50 at most, and each size of a
// partition some more. Lent units would need a group for each set of partitions: hence
// CAP_LENT_GROUPS.

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

/* ---- choice of units; all under the lock ---- */

static void use(struct caps *caps, const struct cap_group *group, uint32_t sessions)
{
	for (uint32_t i = 0; group && i < BACKEND_SM_UNITS_MAX; i++)
		if (group->sms >> i & 1)
			caps->sessions[i] += sessions;
}

/* `units` of the `count` units in the list. */
static uint64_t choose_of(const struct caps *caps, const uint32_t *list, uint32_t count, uint32_t units)
{
	uint32_t least = UINT32_MAX;
	uint64_t best = 0;

	for (uint32_t place = 0; place < count; place += units) {
		uint32_t first = place < count - units ? place : count - units, sessions = 0;
		uint64_t sms = 0;

		for (uint32_t i = first; i < first + units; i++) {
			sessions += caps->sessions[list[i]];
			sms |= UINT64_C(1) << list[i];
		}
		if (sessions < least) {
			least = sessions;
			best = sms;
		}
	}
	return best;
}

static uint64_t choose(const struct caps *caps, uint32_t units, uint64_t allowed)
{
	uint32_t list[BACKEND_SM_UNITS_MAX], count = 0;

	for (uint32_t i = 0; i < BACKEND_SM_UNITS_MAX; i++)
		if (allowed >> i & 1)
			list[count++] = i;
	return units < count ? choose_of(caps, list, count, units) : allowed;
}

static struct cap_group *find(struct caps *caps, uint64_t sms)
{
	for (uint32_t i = 0; i < caps->count; i++)
		if (caps->groups[i].sms == sms)
			return &caps->groups[i];
	return NULL;
}

/* NULL: there are too many groups. */
static struct cap_group *find_or_add(struct caps *caps, uint64_t sms)
{
	struct cap_group *group = find(caps, sms);

	if (group || caps->count == BACKEND_SM_GROUPS_MAX)
		return group;
	group = &caps->groups[caps->count++];
	group->sms = sms;
	atomic_fetch_add(&caps->wanted, 1);
	return group;
}

static uint64_t all_units(const struct backend_device *device)
{
	return BACKEND_SMS(0, device->sm_units);
}

static uint32_t units_of(const struct backend_device *device, uint32_t wish)
{
	uint32_t count = (wish & SHM_SHARE_SMS_MASK) >> SHM_SHARE_SMS_SHIFT;

	/* No cap: the number is of the units beside all partitions. */
	if (wish & SHM_SHARE_LENT || !device->sm_granule)
		return 0;
	return count / device->sm_granule;
}

static uint64_t without_online_part(uint64_t units)
{
	for (uint32_t left = BACKEND_SMS_UNITS(units) / SHM_SHARE_ONLINE_PART; left; left--)
		units &= ~(UINT64_C(1) << (63 - __builtin_clzll(units)));
	return units;
}

/* @lent: include lent units; yields: online sessions have work. Return: the units of the session's
 * group; 0: everywhere */
static uint64_t find_place(const struct tenant *tenant, bool lent, bool yields)
{
	const struct caps *caps = &tenant->executor->caps;
	const struct cap *cap = &tenant->cap;
	uint64_t all = all_units(&tenant->executor->device);
	uint64_t allowed = cap->partition ? cap->partition : all & ~cap->kept;
	uint64_t rest = allowed & word_relaxed(&tenant->view.server->rest);
	uint32_t units = units_of(&tenant->executor->device, cap->wish);

	if (!lent && cap->kept && rest)
		allowed = rest;
	/* No session is without: the daemon leaves a unit to sessions without a partition. */
	allowed = allowed ? allowed : all;
	allowed = yields ? without_online_part(allowed) : allowed;
	if (units)
		return choose(caps, units, allowed);
	return allowed == all ? 0 : allowed;
}

static void keep_off(struct tenant *tenant, uint64_t units, bool keeps)
{
	struct caps *caps = &tenant->executor->caps;
	uint64_t kept = 0;

	for (uint32_t i = 0; i < BACKEND_SM_UNITS_MAX; i++) {
		if (tenant->cap.keeps && tenant->cap.partition >> i & 1)
			caps->keepers[i]--;
		if (keeps && units >> i & 1)
			caps->keepers[i]++;
		kept |= (uint64_t)(caps->keepers[i] != 0) << i;
	}
	word_set(&caps->leaders, word_relaxed(&caps->leaders) + (keeps && !units) -
					 (tenant->cap.keeps && !tenant->cap.partition));
	tenant->cap.partition = units;
	tenant->cap.keeps = keeps;
	word_set(&caps->kept, kept);
}

static bool lends_more(const struct caps *caps)
{
	return caps->count - caps->parts < CAP_LENT_GROUPS;
}

static bool is_offline(uint32_t wish)
{
	return wish & SHM_SHARE_OFFLINE;
}

/* Requests the group that an offline session will use when an online session gets work: in time,
 * for then there are few gaps. The offline session itself is in no group for now, as when its place
 * is chosen. */
static void prepare(struct caps *caps, const struct tenant *tenant)
{
	uint64_t sms;

	if (!is_offline(tenant->cap.wish) || tenant->cap.partition || !lends_more(caps))
		return;
	sms = find_place(tenant, true, true);
	if (sms)
		find_or_add(caps, sms);
}

/* Where there is no place for another group, the session stays where it is. */
static void settle(struct caps *caps, struct tenant *tenant)
{
	uint64_t sms;
	const struct cap_group *group;

	use(caps, tenant->cap.group, UINT32_MAX); /* one less */
	prepare(caps, tenant);
	sms = find_place(tenant, true, tenant->cap.yields);
	if (!lends_more(caps) && !find(caps, sms))
		sms = find_place(tenant, false, tenant->cap.yields);
	group = sms ? find_or_add(caps, sms) : NULL;
	if (group || !sms) {
		tenant->cap.group = group;
	} else if (!caps->told_full) {
		caps->told_full = true;
		log_error("there are %u groups of multiprocessors, and no more can be made: programs stay "
			  "where they are",
			caps->count);
	}
	use(caps, tenant->cap.group, 1);
}

/* ---- sessions ---- */

static uint32_t wish_of(const struct tenant *tenant)
{
	return word_relaxed(&tenant->view.server->share) &
	       (SHM_SHARE_SMS_MASK | SHM_SHARE_LENT | SHM_SHARE_OFFLINE);
}

static uint64_t partition_of(const struct tenant *tenant)
{
	return word_relaxed(&tenant->view.server->partition) & all_units(&tenant->executor->device);
}

static uint64_t latest_work(const struct tenant *tenant)
{
	return tenant->busy_at > tenant->cap.busy_at ? tenant->busy_at : tenant->cap.busy_at;
}

/* As of the previous turn, if work has just come. In a standby all sessions count as having work,
 * so groups exist in time. */
static bool has_work(const struct tenant *tenant)
{
	return tenant->now - latest_work(tenant) < CAP_LEND_NS;
}

/* True if other sessions are to leave the session room: its partition, or the part for online
 * sessions. The words come first: without a partition or shares no more is read. */
static bool may_keep(const struct tenant *tenant, uint32_t wish, uint64_t partition)
{
	return (partition || (word_relaxed(&tenant->executor->sharing) && !is_offline(wish))) &&
	       has_work(tenant);
}

static bool has_to_yield(const struct tenant *tenant, uint32_t wish, uint64_t partition)
{
	return is_offline(wish) && !partition && word_relaxed(&tenant->executor->caps.leaders);
}

/* True if an input of the group's choice has changed since. */
static bool is_changed(const struct tenant *tenant)
{
	const struct cap *cap = &tenant->cap;

	/* The session issues no further command. */
	if (tenant->stopped)
		return cap->keeps && !has_work(tenant);
	if (wish_of(tenant) != cap->wish || partition_of(tenant) != cap->partition ||
		may_keep(tenant, cap->wish, cap->partition) != cap->keeps ||
		has_to_yield(tenant, cap->wish, cap->partition) != cap->yields)
		return true;
	return !cap->partition && word_relaxed(&tenant->executor->caps.kept) != cap->kept;
}

bool cap_is_due(const struct tenant *tenant)
{
	return tenant->cap.waits || is_changed(tenant);
}

uint64_t cap_next_look(const struct tenant *tenant)
{
	return tenant->cap.keeps ? latest_work(tenant) + CAP_LEND_NS : UINT64_MAX;
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

/* Updates the session's inputs. Return: true if the group is to be chosen anew */
static bool update(struct caps *caps, struct tenant *tenant)
{
	struct cap *cap = &tenant->cap;
	/* Read once: the daemon may write these words at this moment. */
	uint64_t partition = partition_of(tenant), kept;
	uint32_t wish = wish_of(tenant);
	bool moved = wish != cap->wish || partition != cap->partition, yields;

	/* A kernel may run for longer than that. */
	if (cap->keeps && !has_work(tenant) && tenant_is_busy(tenant))
		cap->busy_at = tenant->now;
	keep_off(tenant, partition, may_keep(tenant, wish, partition));
	cap->wish = wish;
	kept = partition ? 0 : word_relaxed(&caps->kept);
	yields = has_to_yield(tenant, wish, partition);
	moved |= kept != cap->kept || yields != cap->yields;
	cap->kept = kept;
	cap->yields = yields;
	return moved;
}

void cap_look(struct tenant *tenant)
{
	struct executor *executor = tenant->executor;
	struct caps *caps = &executor->caps;
	uint32_t state;

	if (is_changed(tenant)) {
		pthread_mutex_lock(&caps->lock);
		if (update(caps, tenant))
			settle(caps, tenant);
		pthread_mutex_unlock(&caps->lock);
		if (word_relaxed(&caps->wanted))
			module_worker_wake(executor);
	}
	state = state_of(tenant->cap.group);
	tenant->cap.waits = state != GROUP_MADE;
	if (state == GROUP_MADE)
		word_set(&tenant->sms, sms_of(tenant->cap.group));
}

/* ---- parts of a session's multiprocessors ---- */

/* Bit i of the part names the i-th of the session's units. */
static uint64_t spread(uint64_t part, uint64_t units)
{
	uint64_t sms = 0;

	for (; part && units; part >>= 1, units &= units - 1)
		if (part & 1)
			sms |= units & -units;
	return sms;
}

/* @own: what the session has, as tenant.sms. Return: the same for the part */
static uint64_t part_of(const struct tenant *tenant, uint64_t own, uint64_t part)
{
	const uint64_t units = own ? own : backend_all_sms(&tenant->executor->device);
	const uint64_t sms = spread(part, units);

	return sms && sms != units ? sms : own;
}

/* Under the lock. */
static struct cap_group *add_part(struct caps *caps, uint64_t sms)
{
	struct cap_group *group = caps->parts < CAP_PART_GROUPS ? find_or_add(caps, sms) : NULL;

	caps->parts += group != NULL;
	return group;
}

static const struct cap_group *look_up(struct tenant *tenant, uint64_t sms, bool adds)
{
	struct caps *caps = &tenant->executor->caps;
	const struct cap_group *group;

	pthread_mutex_lock(&caps->lock);
	group = find(caps, sms);
	if (!group && adds)
		group = add_part(caps, sms);
	pthread_mutex_unlock(&caps->lock);
	return group;
}

static bool is_made(struct tenant *tenant, uint64_t sms)
{
	const struct cap_group *group = look_up(tenant, sms, false);

	return group && state_of(group) == GROUP_MADE;
}

/* @own: a group that is made, or 0 */
static uint64_t made_part(struct tenant *tenant, uint64_t own, uint64_t part)
{
	const uint64_t sms = part ? part_of(tenant, own, part) : own;

	return sms != own && is_made(tenant, sms) ? sms : own;
}

uint64_t cap_part(struct tenant *tenant, uint64_t part)
{
	return made_part(tenant, word_relaxed(&tenant->sms), part);
}

uint64_t cap_sms(struct tenant *tenant, uint64_t part)
{
	struct caps *caps = &tenant->executor->caps;
	const struct cap_group *group;

	pthread_mutex_lock(&caps->lock);
	group = tenant->cap.group;
	pthread_mutex_unlock(&caps->lock);
	return made_part(
		tenant, state_of(group) == GROUP_MADE ? sms_of(group) : word_relaxed(&tenant->sms), part);
}

bool cap_has_part(struct tenant *tenant, uint64_t part)
{
	const uint64_t own = word_relaxed(&tenant->sms), sms = part ? part_of(tenant, own, part) : own;

	return sms == own || is_made(tenant, sms);
}

bool cap_readies(struct tenant *tenant, uint64_t part)
{
	const uint64_t own = word_relaxed(&tenant->sms), sms = part ? part_of(tenant, own, part) : own;
	const struct cap_group *group = sms == own ? NULL : look_up(tenant, sms, true);

	if (!group || state_of(group) != GROUP_WANTED)
		return true;
	module_worker_wake(tenant->executor);
	return false;
}

void cap_lend_unserved(struct executor *executor)
{
	struct caps *caps = &executor->caps;
	struct tenant *tenant;

	pthread_mutex_lock(&executor->tenants_lock);
	pthread_mutex_lock(&caps->lock);
	TAILQ_FOREACH (tenant, &executor->tenants, link)
		if (!word_acquire(&tenant->served))
			keep_off(tenant, tenant->cap.partition, false);
	pthread_mutex_unlock(&caps->lock);
	pthread_mutex_unlock(&executor->tenants_lock);
}

void cap_leave(struct tenant *tenant)
{
	struct caps *caps = &tenant->executor->caps;

	pthread_mutex_lock(&caps->lock);
	use(caps, tenant->cap.group, UINT32_MAX);
	tenant->cap.group = NULL;
	keep_off(tenant, 0, false);
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
