// See ticks.h.

#include "server/backend/ticks.h"

#include <math.h>

#define NS_PER_MS 1e6
/* Half of the last place of a binary32, as a factor of its value. */
#define ROUNDING (1.0 / (1 << 24))

void ticks_init(struct ticks *ticks, const struct ticks_source *source)
{
	*ticks = (struct ticks){.source = source};
}

/* The rounding error of a length, in nanoseconds. */
static double rounding(double ns)
{
	double error = fabs(ns) * ROUNDING;

	return error < 0.5 ? 0 : error;
}

static int64_t nanoseconds(float ms)
{
	return (int64_t)llround((double)ms * NS_PER_MS);
}

static enum ticks_event other_base(const struct ticks *ticks)
{
	return ticks->base == TICKS_EVENT_A ? TICKS_EVENT_B : TICKS_EVENT_A;
}

static bool is_under_way(const struct ticks *ticks)
{
	return ticks->state == TICKS_BEGUN || ticks->state == TICKS_EXTENDED;
}

static CUresult record(struct ticks *ticks, uint64_t now)
{
	CUresult code = ticks->source->record(ticks->state == TICKS_NEW ? ticks->base : other_base(ticks));

	if (code)
		return code;
	ticks->state = ticks->state == TICKS_NEW ? TICKS_BEGUN : TICKS_EXTENDED;
	ticks->recorded_at = now;
	return CUDA_SUCCESS;
}

CUresult ticks_stamp(struct ticks *ticks, uint64_t now)
{
	CUresult code = CUDA_ERROR_NOT_READY;

	if (!ticks->stamping)
		code = ticks->source->stamp();
	if (code)
		return code;
	ticks->stamping = true;
	ticks->stamped_at = now;
	return CUDA_SUCCESS;
}

bool ticks_is_known(const struct ticks *ticks)
{
	return ticks->stamped && ticks->width + ticks->drift <= TICKS_KNOWN_NS;
}

/* @link: ns that the next link of the chain will have */
static bool wants_stamp(const struct ticks *ticks, double link, uint64_t now)
{
	double drift = ticks->drift + rounding(link);

	if (!ticks->stamped_at)
		return true;
	if (ticks->stamping || now - ticks->stamped_at < TICKS_STAMP_NS)
		return false;
	return !ticks_is_known(ticks) || drift > TICKS_ERROR_NS;
}

void ticks_note(struct ticks *ticks, uint64_t now)
{
	double link = ticks->state == TICKS_NEW ? 0 : (double)(now - ticks->recorded_at);

	if (ticks_settle(ticks) || (ticks->state == TICKS_SETTLED && link < TICKS_PERIOD_NS))
		return;
	if (wants_stamp(ticks, link, now))
		ticks_stamp(ticks, now);
	record(ticks, now);
}

/* The device's timer was read at some moment between two events. The stamp replaces the present
 * knowledge if it is more exact. */
static void take_stamp(struct ticks *ticks)
{
	float width, since;
	double half;

	if (ticks->source->between(TICKS_EVENT_BEFORE, TICKS_EVENT_BEHIND, &width) ||
		ticks->source->between(ticks->base, TICKS_EVENT_BEFORE, &since))
		return;
	ticks->stamping = false;
	half = width * NS_PER_MS / 2 + rounding(since * NS_PER_MS);
	if (ticks->stamped && half >= ticks->width + ticks->drift)
		return;
	ticks->offset = (int64_t)ticks->source->stamped() - nanoseconds(width) / 2 - nanoseconds(since) -
			ticks->local;
	ticks->width = half;
	ticks->drift = 0;
	ticks->stamped = true;
}

static CUresult take_base(struct ticks *ticks)
{
	enum ticks_event next = ticks->state == TICKS_BEGUN ? ticks->base : other_base(ticks);
	float link = 0;
	CUresult code = ticks->source->between(ticks->base, next, &link);

	if (code)
		return code;
	ticks->local += nanoseconds(link);
	ticks->drift += rounding(link * NS_PER_MS);
	ticks->base = next;
	ticks->state = TICKS_SETTLED;
	return CUDA_SUCCESS;
}

CUresult ticks_settle(struct ticks *ticks)
{
	CUresult code = is_under_way(ticks) ? take_base(ticks) : CUDA_SUCCESS;

	if (ticks->stamping && ticks->state == TICKS_SETTLED)
		take_stamp(ticks);
	return code;
}

CUresult ticks_time(
	struct ticks *ticks, struct backend_event *event, uint64_t now, struct backend_time *ret_time)
{
	CUresult waits = ticks_settle(ticks), code;
	float ms;

	if (ticks->state == TICKS_NEW || ticks->state == TICKS_BEGUN)
		return waits ? waits : CUDA_ERROR_NOT_READY;
	code = ticks->source->since(ticks->base, event, &ms);
	if (code)
		return code;
	/* A nearer base is on its way. */
	if (waits && rounding(ms * NS_PER_MS) > TICKS_ERROR_NS)
		return waits;
	if (!ticks_is_known(ticks) && ticks->stamping && now - ticks->stamped_at < TICKS_STAMP_NS)
		return CUDA_ERROR_NOT_READY;
	ret_time->local = ticks->local + nanoseconds(ms);
	ret_time->device = ticks_is_known(ticks) ? ret_time->local + ticks->offset : 0;
	return CUDA_SUCCESS;
}
