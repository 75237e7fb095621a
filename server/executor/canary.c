// The canary. After some faults running kernels go on, no queued work begins any more, and no error
// is reported: assert() beside a kernel without end was such a case (H200, driver 580; other runs
// of the same had the driver's error within 7 ms). Then the marks of the session and of all others
// never come.
//
// So while a session has work on the device and has issued nothing for QUIET_NS, the main thread
// sends a beat now and then: the device writes the next number into a word of the canary, on a
// stream of the canary with the highest priority. A kernel would not do: it needs room on a
// multiprocessor, and so waits for other kernels' blocks. The write needs no room (measured, H200:
// 0.1 ms at most beside kernels of 50 ms that fill the device, where a kernel took 50 ms; 8 ms
// beside a kernel without end that fills the device, where a kernel took for ever), and after an
// assert, a trap and an access to unmapped memory the write does not come either.
//
//   RESTING ──canary_want()──► beat ──comes──► next beat PERIOD_NS later if it is still wanted, else RESTING
//                               │
//                               └── late by the patience, a session waits all the time, no command of any
//                                   session becomes done, no other fault is examined:
//                                   reported, once
//
// Streams share the queues of the hardware, and a beat in a queue behind waiting work is late, too.
// So as long as no beat comes, each look sends another beat on another stream, and any beat will
// do: only if none comes of more beats than there are queues does the device begin nothing at all.
//
// The report (Suspect) is a suspicion, no proof: the daemon halts or kills this executor, and
// judges. A device that another process has stopped, or does not share, is late as well; hence a
// long patience.
//
// Cost: nothing while programs launch or wait for short work; otherwise a word per PERIOD_NS, 2 us
// of the main thread; streams beyond the first only after a beat that was late.

#include "server/executor/canary.h"

#include <stdio.h>

#include "server/clock.h"
#include "server/executor/executor.h"
#include "server/executor/tenant.h"

#define QUIET_NS  (50 * CLOCK_MS)
#define PERIOD_NS (100 * CLOCK_MS)

/* The first of the words that the device writes is the canary's; sessions have the others. */
static word64 *word_of(struct executor *executor)
{
	return (word64 *)(void *)&executor->scratch[0];
}

void canary_begin(struct executor *executor, uint32_t patience_ms)
{
	executor->canary.patience_ns = patience_ms * CLOCK_MS;
}

void canary_end(struct executor *executor)
{
	struct canary *canary = &executor->canary;

	for (uint32_t i = 0; i < CANARY_STREAMS; i++) {
		if (canary->streams[i])
			executor_code(executor, executor->ops->stream_destroy(canary->streams[i]));
		canary->streams[i] = NULL;
	}
}

void canary_want(struct tenant *tenant)
{
	struct canary *canary = &tenant->executor->canary;

	if (tenant->now - tenant->busy_at < QUIET_NS)
		return;
	word_set(&canary->wanted, 1);
	/* Against resting: either this thread sees `resting`, or the main thread sees `wanted`. */
	word_fence();
	if (word_relaxed(&canary->resting))
		job_board_kick(&tenant->executor->board);
}

/* Sum of the commands known done of all sessions; only grows, but for sessions that end. */
static uint64_t count_done(struct executor *executor)
{
	struct tenant *tenant;
	uint64_t sum = 0;

	TAILQ_FOREACH (tenant, &executor->tenants, link) {
		uint32_t generation = word_relaxed(&tenant->generation);
		struct shm_timeline *timeline = shm_view_timeline(&tenant->view, generation);

		for (uint32_t slot = 0; generation && slot < word_acquire(&tenant->slots); slot++)
			sum += word_acquire(&shm_timeline_at(timeline, slot)->done);
	}
	return sum;
}

/* Return: true if the beat was sent. */
static bool send(struct executor *executor)
{
	struct canary *canary = &executor->canary;
	struct backend_stream **stream = &canary->streams[canary->at];
	CUresult code = CUDA_SUCCESS;

	if (!*stream)
		code = executor->ops->stream_create(executor->device.priority_greatest, 0, stream);
	if (!code)
		code = executor->ops->mark(*stream, word_of(executor), canary->sent + 1);
	if (executor_code(executor, code))
		return false;
	canary->sent++;
	return true;
}

static void send_first(struct executor *executor, uint64_t now)
{
	struct canary *canary = &executor->canary;

	canary->seen = canary->sent + 1;
	canary->progress = count_done(executor);
	if (send(executor))
		canary->late_at = now;
}

/* Sends a beat on the next stream, once on each. */
static void send_another(struct executor *executor)
{
	struct canary *canary = &executor->canary;

	if (canary->sent - canary->seen + 1 >= CANARY_STREAMS)
		return;
	canary->at = (canary->at + 1) % CANARY_STREAMS;
	send(executor);
}

static void tell(struct executor *executor, uint64_t late_ns)
{
	struct wire_message message = {.type = WIRE_SUSPECT};
	char text[160];

	snprintf(text, sizeof(text), "the device has begun nothing for %llu ms, and work waits for it",
		(unsigned long long)(late_ns / CLOCK_MS));
	message.trouble.text = text;
	executor->canary.told = true;
	executor_send(executor, &message);
}

/* True if there is another reason than a device that has stopped. */
static bool is_excused(struct executor *executor, bool wanted)
{
	struct canary *canary = &executor->canary;
	uint64_t progress = count_done(executor);
	bool moves = progress != canary->progress;

	canary->progress = progress;
	return moves || !wanted || contain_is_open(executor) || gate_is_shut(&executor->gate);
}

/* Each stream gets a beat before the patience is over. */
static uint64_t interval(const struct canary *canary)
{
	uint64_t each = canary->patience_ns / (CANARY_STREAMS + 2);

	return canary->late_at && each < PERIOD_NS ? each : PERIOD_NS;
}

static void look(struct executor *executor, uint64_t now)
{
	struct canary *canary = &executor->canary;
	bool wanted = word_relaxed(&canary->wanted);

	word_set(&canary->wanted, 0);
	/* Pairs with the device's write. */
	if (canary->late_at && word_acquire(word_of(executor)) >= canary->seen)
		canary->late_at = 0;
	if (canary->late_at && is_excused(executor, wanted))
		canary->late_at = now;
	else if (canary->late_at && now - canary->late_at >= canary->patience_ns)
		tell(executor, now - canary->late_at);
	else if (canary->late_at && !gate_is_shut(&executor->gate))
		send_another(executor);
	else if (!canary->late_at && wanted && !gate_is_shut(&executor->gate))
		send_first(executor, now);
	/* A thread that waits sets `wanted` again before the next look. */
	canary->look_at = wanted || canary->late_at ? now + interval(canary) : UINT64_MAX;
}

uint64_t canary_step(struct executor *executor, uint64_t now)
{
	struct canary *canary = &executor->canary;

	if (!canary->patience_ns || canary->told || executor_is_lost(executor))
		return UINT64_MAX;
	if (word_relaxed(&canary->resting)) {
		if (!word_relaxed(&canary->wanted))
			return UINT64_MAX;
		word_set(&canary->resting, 0);
		canary->look_at = now;
	}
	if (now >= canary->look_at)
		look(executor, now);
	if (canary->look_at != UINT64_MAX)
		return canary->look_at;
	word_set(&canary->resting, 1);
	word_fence();
	return word_relaxed(&canary->wanted) ? now : UINT64_MAX;
}
