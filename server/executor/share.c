// Shares of the device. Serving threads only, under one lock. Nothing of this runs as long as no
// session of the executor has a weight or class of its own: a turn of the serving loop then reads
// two words beside others that the turn reads anyway, a launch none (sharing_is_on(), the credit).
//
// Accounting. An executor sees only the issue of its own commands and the arrival of the marks
// behind. So a session is *present* while commands of the session on the device are not known done.
// The sessions that are present share the device's busy time evenly (`each` grows by dt / present).
// The sum is the device's busy time, however long commands are. An executor does not see the real
// parts of two present sessions: beside kernels of ten microseconds, a session with kernels of a
// millisecond gets nearly the whole device, and both would be charged half. So sessions with work
// take turns: as a rule a single session is present, and is charged its own use. A turn begins when
// the work of previous sessions is done. So kernels of two sessions gain nothing from running side
// by side; weights are not meant for cases where that matters more than shares.
//
// The order. `virtual` grows by a session's device time over the session's weight, so the session
// with the least is behind its share. That session gets a turn when the present session is ahead by
// SHARE_TURN_NS. A session that returns from idleness is behind by SHARE_CLAIM_NS at most: idle
// time is not saved up. All other sessions with work are held back; a lone session is not. Any
// online session comes before any offline session, at once.
//
// The means. A held-back session's streams have a credit of 0: commands go on from the ring into
// the journal and wait there as for a full queue. Marks, wake-ups, host functions and waits in
// software go on. A session that has the turn, or is alone, has a credit of about SHARE_QUEUE_NS of
// work, so that a hold has an effect soon: that is enough for a busy device.
//
// A hold is finite. Another session, or a running kernel of the held-back session itself, may wait
// for a command that is held back: for an event, or a word that a kernel polls. Each of these ends
// a hold, whatever the other sessions do:
//   - the hold lasted SHARE_PATIENCE times as long as the session's latest work, SHARE_HOLD_MOST_NS
//     at most: then the session may have a short queue on the device once. That is the least share:
//     about 1/65 of the time, more where the queue, at least a command of each stream, is more than
//     SHARE_HOLD_MOST_NS / SHARE_PATIENCE of work
//   - the session has commands on the device, and none ends (SHARE_STUCK_*): then each stream of
//     the session without a command there may have a command
//   - the preferred sessions have no work for SHARE_LINGER_NS, or no look of their thread for
//     SHARE_STALE_NS: that thread is in a call of the driver
// A kernel that polls counts as work of its session, which so loses the claim to come first. The
// begin of a turn waits for the work of others while some command ends within SHARE_DRAIN_NS. A
// stream's first command that is not done is always on the device or waits for nothing behind it,
// so a short queue is no deadlock (gate.c says the same).
//
// Sessions of other executors do not count: the device runs contexts in turn.

#include "server/executor/share.h"

#include "server/executor/retire.h"
#include "shm/layout.h"

/* `virtual` is in ns for the highest weight. */
#define VIRTUAL(ns) ((int64_t)(ns)*SHM_SHARE_WEIGHT_MOST / SHM_SHARE_WEIGHT)

void shares_init(struct shares *shares, word32 *on)
{
	*shares = (struct shares){.on = on};
	TAILQ_INIT(&shares->listed);
	pthread_mutex_init(&shares->lock, NULL);
}

void shares_deinit(struct shares *shares)
{
	pthread_mutex_destroy(&shares->lock);
}

static void unbind(struct share *share)
{
	share->is_bound = false;
	share->credit = STREAM_ISSUE_CREDIT;
	share->between = RETIRE_UNMARKED;
}

void share_init(struct share *share)
{
	*share = (struct share){.weight = SHM_SHARE_WEIGHT};
	unbind(share);
}

/* ---- counting ---- */

static void count(struct shares *shares, uint64_t now)
{
	/* Clocks of threads differ by the length of a turn. */
	if (now <= shares->at)
		return;
	if (shares->present)
		shares->each += (now - shares->at) / shares->present;
	shares->at = now;
}

static void charge(const struct shares *shares, struct share *share)
{
	uint64_t ns = shares->each - share->each;

	share->each = shares->each;
	if (!share->is_present)
		return;
	share->used += ns;
	share->virtual += ns * SHM_SHARE_WEIGHT_MOST / share->weight;
}

static void set_present(struct shares *shares, struct share *share, bool present)
{
	charge(shares, share);
	if (present && !share->is_present)
		shares->present++;
	else if (!present && share->is_present)
		shares->present--;
	share->is_present = present;
}

/* Updates the time of a command, an average of the latest. */
static void learn_cost(struct share *share, uint64_t ended)
{
	uint64_t each = share->unended / ended;

	share->unended = 0;
	/* A held-back command is behind the queue of others. */
	if (share->held_at && share->cost)
		return;
	each = each ? each : 1;
	share->cost = share->cost ? (3 * share->cost + each + 3) / 4 : each;
}

static void see_work(struct shares *shares, struct share *share, uint64_t undone, uint64_t now)
{
	uint64_t passed = now > share->looked_at ? now - share->looked_at : 0;

	if (share->is_present) {
		share->busy += passed;
		share->unended += passed;
	} else {
		share->ended_at = now;
	}
	if (undone < share->undone) {
		learn_cost(share, share->undone - undone);
		share->ended_at = now;
	}
	share->undone = undone;
	share->looked_at = now;
	set_present(shares, share, undone > 0);
}

/* ---- sessions with work ---- */

static int64_t ahead_of(const struct share *one, const struct share *other)
{
	return (int64_t)(one->virtual - other->virtual);
}

static bool comes_before(const struct share *one, const struct share *other)
{
	return one->is_offline == other->is_offline ? ahead_of(one, other) < 0 : !one->is_offline;
}

/* A session that begins to have work. */
static void list(struct shares *shares, struct share *share)
{
	struct share *other, *least = NULL;

	TAILQ_FOREACH (other, &shares->listed, link) {
		charge(shares, other);
		if (other->is_offline == share->is_offline && (!least || ahead_of(other, least) < 0))
			least = other;
	}
	if (least && ahead_of(share, least) < -VIRTUAL(SHARE_CLAIM_NS))
		share->virtual = least->virtual - (uint64_t)VIRTUAL(SHARE_CLAIM_NS);
	if (least && ahead_of(share, least) > VIRTUAL(SHARE_DEBT_NS))
		share->virtual = least->virtual + (uint64_t)VIRTUAL(SHARE_DEBT_NS);
	TAILQ_INSERT_TAIL(&shares->listed, share, link);
	share->is_listed = true;
	share->held_at = 0;
	if (shares->first && comes_before(share, shares->first))
		shares->first = share;
}

static void unlist(struct shares *shares, struct share *share)
{
	if (!share->is_listed)
		return;
	set_present(shares, share, false);
	TAILQ_REMOVE(&shares->listed, share, link);
	share->is_listed = false;
	if (shares->runner == share)
		shares->runner = NULL;
	if (shares->first == share)
		shares->first = NULL;
}

static void see_wish(struct shares *shares, struct share *share, bool wants, uint64_t now)
{
	if (wants || share->is_present)
		share->wanted_at = now;
	if ((wants || share->is_present) && !share->is_listed)
		list(shares, share);
	else if (now - share->wanted_at >= SHARE_LINGER_NS)
		unlist(shares, share);
}

/* ---- turns ---- */

static bool is_stale(const struct share *share, uint64_t now)
{
	return (int64_t)(now - share->looked_at) > (int64_t)SHARE_STALE_NS;
}

/* The next session. The whole list is searched once in SHARE_LOOK_NS, not at each look of each
 * session: there may be hundreds. */
static struct share *find_first(struct shares *shares, struct share *share, uint64_t now)
{
	struct share *other;

	if (shares->first && !is_stale(shares->first, now) &&
		(int64_t)(now - shares->found_at) < (int64_t)SHARE_LOOK_NS)
		return shares->first;
	shares->first = NULL;
	shares->found_at = now;
	TAILQ_FOREACH (other, &shares->listed, link) {
		if (other != share && is_stale(other, now))
			continue;
		charge(shares, other);
		if (!shares->first || comes_before(other, shares->first))
			shares->first = other;
	}
	return shares->first;
}

static bool is_rival(const struct share *other, const struct share *share, uint64_t now)
{
	return other != share && !is_stale(other, now);
}

/* True if other sessions have work. */
static bool has_rivals(const struct shares *shares, const struct share *share, uint64_t now)
{
	const struct share *other;

	TAILQ_FOREACH (other, &shares->listed, link)
		if (is_rival(other, share, now))
			return true;
	return false;
}

/* True if other sessions have work on the device to wait for. */
static bool has_rivals_there(const struct shares *shares, const struct share *share, uint64_t now)
{
	const struct share *other;

	TAILQ_FOREACH (other, &shares->listed, link)
		if (is_rival(other, share, now) && other->is_present &&
			other->is_offline == share->is_offline &&
			(int64_t)(now - other->ended_at) < (int64_t)SHARE_DRAIN_NS)
			return true;
	return false;
}

/* True if the present session goes on: until another is behind by a turn, or of a better class. */
static bool stays(const struct shares *shares, const struct share *first, uint64_t now)
{
	const struct share *runner = shares->runner;

	return runner && !is_stale(runner, now) && runner->is_offline == first->is_offline &&
	       ahead_of(runner, first) < VIRTUAL(SHARE_TURN_NS);
}

static uint64_t within(uint64_t number, uint64_t least, uint64_t most)
{
	return number < least ? least : number > most ? most : number;
}

/* Commands for each stream that are about as much work as a session may have on the device. */
static uint64_t queue_of(const struct share *share, unsigned streams, bool alone)
{
	uint64_t least = alone && !share->is_offline ? 2 : 1;

	if (!share->cost)
		return share->held_at ? 1 : SHARE_QUEUE_FIRST;
	return within(SHARE_QUEUE_NS / share->cost / (streams ? streams : 1), least, STREAM_ISSUE_CREDIT);
}

/* Return: the commands that each stream of a held-back session may have all the same. */
static uint64_t least_of(struct share *share, unsigned streams, uint64_t now)
{
	uint64_t hold = within(
		SHARE_PATIENCE * (share->busy - share->busy_before), SHARE_HOLD_LEAST_NS, SHARE_HOLD_MOST_NS);
	uint64_t stuck = within(2 * share->cost, SHARE_STUCK_LEAST_NS, SHARE_STUCK_MOST_NS);

	if (!share->held_at)
		share->held_at = now;
	if (now - share->held_at < hold &&
		!(share->is_present && now - share->held_at >= stuck && now - share->ended_at >= stuck))
		return 0;
	share->held_at = now;
	share->busy_before = share->busy;
	return share->is_present ? 1 : queue_of(share, streams, false);
}

static uint64_t decide(
	struct shares *shares, struct share *share, const struct share_sight *sight, uint64_t now)
{
	struct share *first = find_first(shares, share, now);

	charge(shares, first);
	if (shares->runner)
		charge(shares, shares->runner);
	if (shares->runner != first && !stays(shares, first, now)) {
		shares->runner = first;
		shares->is_clear = false;
	}
	if (shares->runner != share)
		return sight->wants ? least_of(share, sight->streams, now) : 0;
	if (share->held_at)
		share->busy_before = share->busy;
	share->held_at = 0;
	shares->is_clear = shares->is_clear || !has_rivals_there(shares, share, now);
	return shares->is_clear ? queue_of(share, sight->streams, !has_rivals(shares, share, now)) : 0;
}

void share_look(struct shares *shares, struct share *share, const struct share_sight *sight, uint64_t now)
{
	pthread_mutex_lock(&shares->lock);
	count(shares, now);
	see_work(shares, share, sight->undone, now);
	see_wish(shares, share, sight->wants, now);
	share->credit =
		share->is_listed ? decide(shares, share, sight, now) : queue_of(share, sight->streams, true);
	share->counted = share->used;
	pthread_mutex_unlock(&shares->lock);
	share->between = share->credit / 2 ? share->credit / 2 : 1;
	share->is_bound = true;
}

void share_note(struct shares *shares, struct share *share, uint64_t undone, uint64_t now)
{
	bool present = undone > 0;

	/* Only the session's own thread writes either field. */
	if (present == share->is_present || !share->is_listed) {
		share->undone = undone;
		return;
	}
	pthread_mutex_lock(&shares->lock);
	count(shares, now);
	share->undone = undone;
	share->ended_at = now;
	set_present(shares, share, present);
	pthread_mutex_unlock(&shares->lock);
}

void share_leave(struct shares *shares, struct share *share)
{
	pthread_mutex_lock(&shares->lock);
	unlist(shares, share);
	share->undone = 0;
	pthread_mutex_unlock(&shares->lock);
	unbind(share);
}

void share_set(struct shares *shares, struct share *share, uint32_t word)
{
	uint32_t weight = word & SHM_SHARE_WEIGHT_MASK;
	bool is_special = (word & (SHM_SHARE_WEIGHT_MASK | SHM_SHARE_OFFLINE)) != 0;

	pthread_mutex_lock(&shares->lock);
	share->word = word;
	share->weight = weight ? (uint32_t)within(weight, 1, SHM_SHARE_WEIGHT_MOST) : SHM_SHARE_WEIGHT;
	share->is_offline = word & SHM_SHARE_OFFLINE;
	shares->specials += (unsigned)is_special;
	shares->specials -= (unsigned)share->is_special;
	share->is_special = is_special;
	shares->first = NULL;
	word_set(shares->on, shares->specials != 0);
	pthread_mutex_unlock(&shares->lock);
}
