// Copies between mapped device memory of a session and a file (CarryMemory).
//
// The main thread checks a request. For a copy to a file the main thread first waits for the
// session's work on the device (drain.c); no more is issued, because the session's word `share`
// forbids that. A request for no bytes ends there. Then the request is a job of the carriers:
// threads that each have a stream and two pinned pieces. While the device copies one piece, the
// carrier copies the other between its piece and the file:
//
//   out   device ──► piece 0 │ device ──► piece 1 │ device ──► piece 0 …
//                            │ piece 0 ──► file   │ piece 1 ──► file   …
//   into  the same from right to left
//
// Host memory bounds the way out: pages are allocated, then written. With fallocate() the kernel
// does not clear pages, unlike for writes through a mapping. Huge pages make the way several times
// faster (standby/swap_files.c). The answer to a request has the times of its thread for the pages,
// the device and the file.
//
// Memory may also go into the executor's stash, on the device (stash.c), and from there to a file.
//
// Requests of one session are copied by several carriers at a time. Their order does not matter:
// the daemon asks for each range once, and releases the memory of a range that may be copied to
// twice (standby/swap.c).
//
// A carrier gives nothing to the device of an executor that is lost or halted. Copies that are
// still under way then read memory that is not changed, or write memory that is not used.
//
// Files are read and written, not mapped: a machine without memory is an error and no signal then,
// and pages that are written whole need not be cleared first. The kernel lets one thread at a time
// write to a file, so the daemon has several.

#include "server/executor/carry.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/constant.h"
#include "server/executor/drain.h"
#include "server/executor/tenant.h"
#include "server/file.h"

#define PIECE	 (UINT64_C(4) << 20)
#define PAGE	 UINT64_C(4096)
#define DRAIN_NS (UINT64_C(5000) * CLOCK_MS)

struct carrier_pages {
	word64 marks[2]; /* of the pieces: the device's latest mark */
	uint8_t reserved[PAGE - 2 * sizeof(word64)];
	uint8_t pieces[2][PIECE];
};

/* The parts of a carrier's time, as in the answer. */
enum { PAGES, DEVICE, FILES, TIMES };

struct carrier {
	struct executor *executor;
	uint64_t times[TIMES]; /* ns, of the present request */
	pthread_t thread;
	struct backend_stream *stream;
	struct carrier_pages *pages; /* registered */
	uint64_t marks[2];	     /* values of pages->marks when the device is done */
	bool unmarked[2];	     /* the backend has not taken the mark */
};

/* ---- one request, on a carrier ---- */

struct load {
	const struct wire_carry *wish;
	int fd;
};

static uint64_t piece_bytes(const struct wire_carry *wish, uint64_t at)
{
	return wish->bytes - at < PIECE ? wish->bytes - at : PIECE;
}

/* Puts a mark behind everything that was issued for a half. */
static CUresult put_mark(struct carrier *carrier, unsigned half)
{
	struct executor *executor = carrier->executor;
	CUresult code = executor_code(executor,
		executor->ops->mark(carrier->stream, &carrier->pages->marks[half], carrier->marks[half]));

	carrier->unmarked[half] = code;
	return code;
}

/* Issues a copy that has to do with a half. */
static CUresult issue(struct carrier *carrier, const struct backend_copy *copy, unsigned half)
{
	struct executor *executor = carrier->executor;
	CUresult code;

	if (executor_is_lost(executor))
		return CUDA_ERROR_NOT_READY;
	code = executor_code(executor, executor->ops->copy(carrier->stream, copy));
	if (code)
		return code;
	carrier->marks[half]++;
	return put_mark(carrier, half);
}

/* Issues the device's half of a piece's copy. */
static CUresult begin_piece(struct carrier *carrier, const struct wire_carry *wish, uint64_t at)
{
	unsigned half = at / PIECE % 2;
	uint64_t memory = wish->address + at, host = (uintptr_t)carrier->pages->pieces[half];
	struct backend_copy copy = {.dst = wish->into ? memory : host,
		.src = wish->into ? host : memory,
		.width = piece_bytes(wish, at),
		.height = 1,
		.depth = 1,
		.dst_is_host = !wish->into,
		.src_is_host = wish->into};

	return issue(carrier, &copy, half);
}

/* Waits until the device is done with a half. Without a mark nobody knows: a mark that the backend
 * did not take is tried again. */
static CUresult await_half(struct carrier *carrier, unsigned half)
{
	uint64_t since = clock_now();

	/* Pairs with the device's write. */
	while (word_acquire(&carrier->pages->marks[half]) < carrier->marks[half]) {
		const struct timespec pause = {.tv_nsec = (long)clock_interval(since, clock_now())};

		if (executor_is_lost(carrier->executor))
			return CUDA_ERROR_NOT_READY;
		if (carrier->unmarked[half])
			put_mark(carrier, half);
		nanosleep(&pause, NULL);
	}
	return CUDA_SUCCESS;
}

static CUresult write_piece(const struct load *load, uint64_t at, const uint8_t *piece)
{
	return file_write(load->fd, piece, piece_bytes(load->wish, at), load->wish->offset + at);
}

static CUresult read_piece(const struct load *load, uint64_t at, uint8_t *piece)
{
	return file_read_at(load->fd, piece, piece_bytes(load->wish, at), load->wish->offset + at)
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

/* Allocates pages of the file. A failure shows again at the write, if it matters. */
static void make_pages(const struct load *load, uint64_t at)
{
	fallocate(load->fd, 0, (off_t)(load->wish->offset + at), (off_t)piece_bytes(load->wish, at));
}

/* Adds the time since `*since` to a part. */
static void spent(struct carrier *carrier, unsigned what, uint64_t *since)
{
	uint64_t now = clock_now();

	carrier->times[what] += now - *since;
	*since = now;
}

static CUresult carry_out(struct carrier *carrier, const struct load *load)
{
	uint64_t since = clock_now();
	CUresult code = begin_piece(carrier, load->wish, 0);

	for (uint64_t at = 0; !code && at < load->wish->bytes; at += PIECE) {
		unsigned half = at / PIECE % 2;

		if (load->wish->bytes - at > PIECE)
			code = begin_piece(carrier, load->wish, at + PIECE);
		spent(carrier, DEVICE, &since);
		if (!code)
			make_pages(load, at);
		spent(carrier, PAGES, &since);
		if (!code)
			code = await_half(carrier, half);
		spent(carrier, DEVICE, &since);
		if (!code)
			code = write_piece(load, at, carrier->pages->pieces[half]);
		spent(carrier, FILES, &since);
	}
	return code;
}

static CUresult carry_into(struct carrier *carrier, const struct load *load)
{
	uint64_t since = clock_now();
	CUresult code = CUDA_SUCCESS;

	for (uint64_t at = 0; !code && at < load->wish->bytes; at += PIECE) {
		unsigned half = at / PIECE % 2;

		code = await_half(carrier, half);
		spent(carrier, DEVICE, &since);
		if (!code)
			code = read_piece(load, at, carrier->pages->pieces[half]);
		spent(carrier, FILES, &since);
		if (!code)
			code = begin_piece(carrier, load->wish, at);
	}
	return code;
}

/* On the device alone. */
static CUresult carry_aside(struct carrier *carrier, const struct load *load)
{
	const struct backend_copy copy = {.dst = load->wish->aside,
		.src = load->wish->address,
		.width = load->wish->bytes,
		.height = 1,
		.depth = 1};

	return issue(carrier, &copy, 0);
}

/* In any case the halves are not written again before the device is done with both. */
static CUresult settle(struct carrier *carrier, CUresult code)
{
	for (unsigned half = 0; half < 2; half++) {
		CUresult r = await_half(carrier, half);

		code = code ? code : r;
	}
	return code;
}

static const char *text_of(CUresult code)
{
	switch (code) {
	case CUDA_SUCCESS:
		return NULL;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return "there is no room for it in host memory, or in swap_directory";
	default:
		return "its device memory could not be copied";
	}
}

/* Return: what counts the copies of this kind, into the stash or out of it; NULL: it is of no such
 * kind */
static word32 *stash_count(const struct job *job)
{
	struct stash_parts *stash = &job->executor->stash;

	if (!job->tenant)
		return &stash->emptying;
	return job->message.carry.aside ? &stash->filling : NULL;
}

static void leave_stash(const struct job *job)
{
	word32 *count = stash_count(job);

	/* Pairs with the acquires in stash.c. */
	if (count)
		atomic_fetch_sub_explicit(count, 1, memory_order_release);
}

static void carry(struct carrier *carrier, struct job *job)
{
	const struct wire_carry *wish = &job->message.carry;
	const struct range range = {wish->address, wish->address + wish->bytes};
	struct load load = {wish, packet_take_fd(&job->packet, 0)};
	uint64_t since;
	CUresult code;

	memset(carrier->times, 0, sizeof(carrier->times));
	if (wish->aside)
		code = carry_aside(carrier, &load);
	else
		code = wish->into ? carry_into(carrier, &load) : carry_out(carrier, &load);
	since = clock_now();
	code = settle(carrier, code);
	spent(carrier, DEVICE, &since);
	if (!code && wish->into && !constant_refresh_in(job->tenant, &range))
		code = CUDA_ERROR_NOT_READY;
	if (load.fd >= 0)
		close(load.fd);
	/* Pairs with the acquire in carry_is_busy(). */
	if (job->tenant)
		atomic_fetch_sub_explicit(&job->tenant->carrying, 1, memory_order_release);
	leave_stash(job);
	job_board_kick(&job->executor->board);
	job_reply(job, code, carrier->times, TIMES, text_of(code));
}

/* ---- carriers ---- */

static struct job *take(struct carriers *carriers)
{
	struct job *job;

	pthread_mutex_lock(&carriers->lock);
	while (!carriers->stop && TAILQ_EMPTY(&carriers->queue))
		pthread_cond_wait(&carriers->more, &carriers->lock);
	job = carriers->stop ? NULL : TAILQ_FIRST(&carriers->queue);
	if (job)
		TAILQ_REMOVE(&carriers->queue, job, link);
	pthread_mutex_unlock(&carriers->lock);
	return job;
}

static void *run(void *argument)
{
	struct carrier *carrier = argument;
	struct job *job;

	prctl(PR_SET_NAME, "frmps-carry");
	executor_code(carrier->executor, carrier->executor->ops->thread_enter());
	while ((job = take(&carrier->executor->carriers)))
		carry(carrier, job);
	return NULL;
}

static void carrier_close(struct carrier *carrier)
{
	struct executor *executor = carrier->executor;

	if (carrier->stream)
		executor_code(executor, executor->ops->stream_destroy(carrier->stream));
	if (!carrier->pages)
		return;
	executor_code(executor, executor->ops->host_unregister(carrier->pages));
	munmap(carrier->pages, sizeof(*carrier->pages));
}

static CUresult carrier_open(struct carrier *carrier, struct executor *executor)
{
	void *pages = mmap(
		NULL, sizeof(*carrier->pages), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CUresult code = CUDA_ERROR_OUT_OF_MEMORY;

	*carrier = (struct carrier){.executor = executor};
	if (pages != MAP_FAILED)
		code = executor_code(executor, executor->ops->host_register(pages, sizeof(*carrier->pages)));
	if (!code)
		carrier->pages = pages;
	else if (pages != MAP_FAILED)
		munmap(pages, sizeof(*carrier->pages));
	if (!code)
		code = executor_code(executor, executor->ops->stream_create(0, 0, &carrier->stream));
	if (!code && pthread_create(&carrier->thread, NULL, run, carrier))
		code = CUDA_ERROR_OUT_OF_MEMORY;
	if (code)
		carrier_close(carrier);
	return code;
}

bool carry_prepare(struct executor *executor)
{
	struct carriers *carriers = &executor->carriers;
	long wanted = sysconf(_SC_NPROCESSORS_ONLN) / 2;

	wanted = wanted < 1 ? 1 : wanted > (long)CARRIERS_MAX ? (long)CARRIERS_MAX : wanted;
	if (!carriers->all)
		carriers->all = calloc(CARRIERS_MAX, sizeof(*carriers->all));
	while (carriers->all && carriers->count < wanted &&
		!carrier_open(&carriers->all[carriers->count], executor))
		carriers->count++;
	return carriers->count;
}

void carry_init(struct executor *executor)
{
	TAILQ_INIT(&executor->carriers.queue);
	pthread_mutex_init(&executor->carriers.lock, NULL);
	pthread_cond_init(&executor->carriers.more, NULL);
}

void carry_deinit(struct executor *executor)
{
	struct carriers *carriers = &executor->carriers;
	struct job *job;

	pthread_mutex_lock(&carriers->lock);
	carriers->stop = true;
	pthread_cond_broadcast(&carriers->more);
	pthread_mutex_unlock(&carriers->lock);
	for (uint32_t i = 0; i < carriers->count; i++) {
		pthread_join(carriers->all[i].thread, NULL);
		carrier_close(&carriers->all[i]);
	}
	while ((job = TAILQ_FIRST(&carriers->queue))) {
		TAILQ_REMOVE(&carriers->queue, job, link);
		job_free(job);
	}
	free(carriers->all);
	pthread_cond_destroy(&carriers->more);
	pthread_mutex_destroy(&carriers->lock);
}

/* ---- main thread ---- */

bool carry_is_busy(const struct tenant *tenant)
{
	/* Pairs with the release behind a copy. */
	return word_acquire(&tenant->carrying);
}

static void refuse(struct job *job, CUresult code, const char *text)
{
	leave_stash(job);
	job_reply(job, code, NULL, 0, text);
}

static void queue(struct job *job)
{
	struct carriers *carriers = &job->executor->carriers;

	if (!carry_prepare(job->executor)) {
		refuse(job, CUDA_ERROR_OUT_OF_MEMORY, "the executor has no memory for what copies");
		return;
	}
	if (job->tenant)
		atomic_fetch_add_explicit(&job->tenant->carrying, 1, memory_order_relaxed);
	pthread_mutex_lock(&carriers->lock);
	TAILQ_INSERT_TAIL(&carriers->queue, job, link);
	pthread_mutex_unlock(&carriers->lock);
	pthread_cond_signal(&carriers->more);
}

static void drained(struct job *job)
{
	if (!job->drained || executor_is_lost(job->executor) || job->tenant->closing)
		refuse(job, CUDA_ERROR_NOT_READY, "its work on the device does not end");
	else if (!job->message.carry.bytes)
		refuse(job, CUDA_SUCCESS, NULL);
	else
		queue(job);
}

/* True if the file has, or can have, these bytes: it does not end before their start. */
static bool has_room(int fd, const struct wire_carry *wish)
{
	struct stat status;

	return fstat(fd, &status) == 0 && status.st_size >= 0 && wish->offset <= (uint64_t)status.st_size &&
	       wish->bytes <= (uint64_t)status.st_size - wish->offset;
}

static bool is_whole(const struct wire_carry *wish)
{
	return wish->address % PAGE == 0 && wish->bytes % PAGE == 0 && wish->offset % PAGE == 0 &&
	       wish->aside % PAGE == 0 && wish->bytes && wish->address + wish->bytes > wish->address;
}

/* The other side is the stash, or a file. */
static bool has_other_side(const struct job *job)
{
	const struct wire_carry *wish = &job->message.carry;

	if (wish->aside)
		return !job->packet.fd_count && !wish->into &&
		       stash_covers(job->executor, wish->aside, wish->bytes);
	return job->packet.fd_count == 1 && has_room(job->packet.fds[0], wish);
}

static bool is_sound(const struct job *job)
{
	const struct wire_carry *wish = &job->message.carry;
	struct range_cache cache = {0};

	if (!wish->bytes)
		return !job->packet.fd_count && !wish->into;
	return is_whole(wish) &&
	       range_set_covers_slow(&job->tenant->device, &cache, wish->address, wish->bytes) &&
	       has_other_side(job);
}

/* After this the serving thread calls for the memory again at the session's next work. */
static void begin_out(struct job *job)
{
	word_set(&job->tenant->called, 0);
	drain_begin(job, DRAIN_NS, drained);
}

/* Return: whether the job goes on: it counts as one of the stash, if it has to do with that */
static bool begin(struct job *job, bool is_sound)
{
	word32 *count = stash_count(job);

	if (!is_sound)
		job_reply(job, CUDA_ERROR_INVALID_VALUE, NULL, 0, "no such memory, or the file is too short");
	else if (count)
		atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
	return is_sound;
}

void carry_handle(struct job *job)
{
	if (!begin(job, is_sound(job)))
		return;
	if (job->message.carry.into)
		queue(job);
	else
		begin_out(job);
}

void carry_handle_stash(struct job *job)
{
	const struct wire_carry *wish = &job->message.carry;

	if (begin(job, is_whole(wish) && stash_covers(job->executor, wish->address, wish->bytes) &&
			       has_other_side(job)))
		queue(job);
}
