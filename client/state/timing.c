// See timing.h.
//
// The driver of an executor knows the time between two records of that executor. If the executor
// was replaced between the records, the device's timer counts, which both executors know to some
// microseconds.

#include "client/state/timing.h"

#include "client/link/lost.h"
#include "client/state/clock.h"
#include "client/state/log.h"
#include "client/state/session.h"
#include "client/state/stream.h"
#include "client/submit/submit.h"
#include "shm/doorbell.h"

/* An awake executor usually writes a time within this; then the library asks. */
#define SPIN_NS UINT64_C(20000)
/* How long a replaced executor may still write. */
#define LATE_NS	 UINT64_C(20000000)
#define SLEEP_US UINT64_C(1000)
/* Looks at the word for each look at the clock. */
#define LOOKS 16u

struct time {
	uint64_t epoch, local, device;
};

/* Return: whether it is that of the record. */
static bool read_place(const struct session *session, uint32_t event, uint64_t place, struct time *ret)
{
	struct shm_time *at = &session->connection.view.times[event];

	/* Pairs with publish() of server/executor/timing.c. */
	if (word_acquire(&at->record) != place)
		return false;
	*ret = (struct time){word_acquire(&at->epoch), word_acquire(&at->local), word_acquire(&at->device)};
	return word_acquire(&at->record) == place;
}

static bool read_time(const struct timing_record *record, struct time *ret)
{
	return read_place(record->stream->session, record->event, record->place, ret);
}

bool timing_read(const struct client_stream *stream, uint32_t event, uint64_t place, uint64_t *ret_epoch,
	uint64_t *ret_ns)
{
	struct time time;

	if (!read_place(stream->session, event, place, &time))
		return false;
	*ret_epoch = time.epoch;
	*ret_ns = time.local;
	return true;
}

static bool spin(const struct timing_record *record, struct time *ret)
{
	uint64_t begin = clock_now_ns();

	do
		for (unsigned int i = 0; i < LOOKS; ++i) {
			if (read_time(record, ret))
				return true;
			word_glance();
		}
	while (clock_now_ns() - begin < SPIN_NS);
	return false;
}

/* A sleeping executor writes times only on request. */
static bool is_awake(const struct session *session)
{
	return !word_relaxed(&session->connection.view.server->asleep);
}

void timing_expect(const struct timing_record *record)
{
	struct time time;

	if (!read_time(record, &time) && is_awake(record->stream->session))
		spin(record, &time);
}

bool timing_is_orphaned(const struct client_stream *stream, uint64_t seq)
{
	return word_acquire(&stream->session->connection.view.states[stream->slot].untimed) >= seq;
}

static CUresult await_time(const struct timing_record *record, struct time *ret)
{
	struct session *session = record->stream->session;
	struct shm_server_header *server = session->connection.view.server;
	uint64_t begin = clock_now_ns();
	CUresult r = CUDA_SUCCESS;

	while (!read_time(record, ret) && !(is_awake(session) && spin(record, ret))) {
		uint32_t seen = word_acquire(&server->wake);

		if (word_acquire(record->latest) != record->place)
			return CUDA_ERROR_NOT_READY;
		if (timing_is_orphaned(record->stream, record->seq) && clock_now_ns() - begin > LATE_NS) {
			*ret = (struct time){0};
			return CUDA_SUCCESS;
		}
		r = submit_wake(record->stream, record->seq);
		if (r == CUDA_SUCCESS && !spin(record, ret)) {
			wake_wait(&server->wake, seen, SLEEP_US);
			r = lost_check(session);
		}
		if (r != CUDA_SUCCESS)
			return r;
	}
	return CUDA_SUCCESS;
}

static CUresult find_time(const struct timing_record *record, struct time *ret)
{
	return read_time(record, ret) ? CUDA_SUCCESS : await_time(record, ret);
}

CUresult timing_between(
	const struct timing_record *start, const struct timing_record *end, float *ret_milliseconds)
{
	struct time from, to;
	CUresult r = find_time(start, &from);
	bool same, known;

	if (r == CUDA_SUCCESS)
		r = find_time(end, &to);
	if (r != CUDA_SUCCESS)
		return r;
	same = from.epoch == to.epoch;
	known = from.epoch && to.epoch && (same || (from.device && to.device));
	if (!known) {
		client_log(CLIENT_LOG_ERROR, "the time of an event was lost with an executor");
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	*ret_milliseconds =
		(float)((double)(int64_t)(same ? to.local - from.local : to.device - from.device) / 1e6);
	return CUDA_SUCCESS;
}
