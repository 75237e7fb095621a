// See text.h. Runs on the program's threads. Text of kernels goes through the program's own stdio
// and is flushed, as the driver does, so that it stays in order with the program's own output.
//
// Locks: standard output's own lock comes first, so that a program that holds it across a call of
// the library cannot deadlock with itself. The session's lock guards the ring's size and the
// reader's position, but for a first look without the lock.

#include "client/text/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/link/lost.h"
#include "client/link/map.h"
#include "client/state/log.h"
#include "client/state/session.h"
#include "client/text/render.h"
#include "shm/text.h"

#define PAGE UINT64_C(4096)
#define WORD sizeof(uint64_t)

void text_start(void)
{
	pthread_mutex_init(&session_self()->text.lock, NULL);
}

/* ---- records ---- */

static word64 *word_at(struct text *text, uint64_t position)
{
	return &text->ring->words[(position & (text->bytes - 1)) / WORD];
}

/* The first word of the record at a position, 0 if there is none yet. */
static uint64_t first_word(struct text *text, uint64_t position)
{
	uint64_t first = word_acquire(word_at(text, position));
	uint32_t size = SHM_TEXT_SIZE(first);

	if (first != SHM_TEXT_FIRST(size, SHM_TEXT_KIND(first), position))
		return 0;
	return size >= WORD && size % WORD == 0 && size <= text->bytes ? first : 0;
}

/* The first record from a position on, which is not behind `head`; `head` if there is none. */
static uint64_t next_record(struct text *text, uint64_t position, uint64_t head)
{
	while (head - position >= WORD && !first_word(text, position))
		position += WORD;
	return head - position >= WORD ? position : head;
}

/* Continues at the oldest intact record if kernels have written more than a lap since. */
static void catch_up(struct text *text, uint64_t head)
{
	uint64_t position = word_relaxed(&text->taken);

	/* Kernels have corrupted the head: records that were read do not come again. */
	if (head < position)
		word_set(&text->taken, head);
	if (head < position || head - position <= text->bytes)
		return;
	client_log(CLIENT_LOG_INFO, "text of kernels was overwritten before it was read: "
				    "CU_LIMIT_PRINTF_FIFO_SIZE gives it more room");
	word_set(&text->taken, next_record(text, head - text->bytes, head));
}

/* A copy of a record; NULL without memory. The caller frees it. @ret_words: of its body */
static uint64_t *copy_record(struct text *text, uint64_t position, uint64_t first, size_t *ret_words)
{
	size_t words = SHM_TEXT_SIZE(first) / WORD - 1;
	uint64_t *body = malloc(words * WORD + 1);

	for (size_t i = 0; body && i < words; ++i)
		body[i] = word_relaxed(word_at(text, position + (i + 1) * WORD));
	*ret_words = words;
	return body;
}

/* Bypasses stdio: a thread of the program that holds stderr may wait for the caller. */
static void put_assertion(const uint64_t *body, size_t words)
{
	char *lines = NULL;
	size_t size;
	FILE *out = open_memstream(&lines, &size);

	if (!out)
		return;
	render_assert(out, body, words);
	if (!fclose(out))
		dprintf(STDERR_FILENO, "%s", lines);
	free(lines);
}

static void render(uint32_t kind, const uint64_t *body, size_t words)
{
	switch (kind) {
	case SHM_TEXT_PRINTF:
		render_printf(stdout, body, words);
		break;
	case SHM_TEXT_PLAIN:
		render_plain(stdout, body, words);
		break;
	case SHM_TEXT_ASSERT:
		put_assertion(body, words);
		break;
	default:
		break;
	}
}

/* Takes the next record out. Return: false if there is none. */
static bool take(struct text *text)
{
	uint64_t head = word_acquire(&text->ring->head), position, first, *body;
	size_t words;

	catch_up(text, head);
	position = word_relaxed(&text->taken);
	first = position < head ? first_word(text, position) : 0;
	/* The kernel reserves room for the whole record. */
	if (!first || SHM_TEXT_SIZE(first) > head - position)
		return false;
	body = copy_record(text, position, first, &words);
	word_set(&text->taken, position + SHM_TEXT_SIZE(first));
	/* A record that was overwritten meanwhile is dropped. */
	if (body && word_acquire(&text->ring->head) - position <= text->bytes)
		render(SHM_TEXT_KIND(first), body, words);
	free(body);
	return true;
}

static void take_all(struct text *text)
{
	uint64_t before = word_relaxed(&text->taken);

	while (take(text))
		continue;
	if (word_relaxed(&text->taken) != before)
		fflush(stdout);
}

/* Skips room whose records will never be finished. */
static void take_whatever(struct text *text)
{
	uint64_t head = word_acquire(&text->ring->head), position;

	take_all(text);
	/* The head goes back only if kernels have corrupted it. */
	while ((position = word_relaxed(&text->taken)) < head && word_acquire(&text->ring->head) >= head) {
		client_log(CLIENT_LOG_INFO, "unfinished text of kernels is lost");
		word_set(&text->taken,
			head - position > WORD ? next_record(text, position + WORD, head) : head);
		take_all(text);
	}
}

/* Return: true if the caller has both locks */
static bool try_locks(struct text *text)
{
	if (ftrylockfile(stdout))
		return false;
	if (!pthread_mutex_trylock(&text->lock))
		return true;
	funlockfile(stdout);
	return false;
}

static bool take_locks(struct text *text)
{
	flockfile(stdout);
	pthread_mutex_lock(&text->lock);
	return true;
}

static void flush_with(
	struct text *text, bool (*locking)(struct text *text), void (*taking)(struct text *text))
{
	int cancelable;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	if (locking(text)) {
		taking(text);
		pthread_mutex_unlock(&text->lock);
		funlockfile(stdout);
	}
	pthread_setcancelstate(cancelable, NULL);
}

static bool has_more(struct text *text)
{
	return atomic_load(&text->ring) && word_acquire(&text->ring->head) != word_acquire(&text->taken);
}

void text_flush(struct session *session)
{
	struct text *text = &session->text;

	if (has_more(text))
		flush_with(text, take_locks, take_all);
}

void text_settle(struct session *session)
{
	struct text *text = &session->text;
	uint32_t generation = word_acquire(&session->connection.view.server->generation);

	if (!atomic_load(&text->ring) || word_relaxed(&text->settled) == generation) {
		text_flush(session);
		return;
	}
	flush_with(text, take_locks, take_whatever);
	word_set(&text->settled, generation);
}

/* The session has ended. The caller may hold locks, so it does not wait for a thread that writes:
 * the program's next call tries again. */
static void end(struct session *session)
{
	struct text *text = &session->text;

	if (has_more(text))
		flush_with(text, try_locks, take_whatever);
}

/* ---- the ring ---- */

/* The largest ring that is not larger than a wish. */
static uint64_t ring_bytes(uint64_t wish)
{
	uint64_t size = SHM_TEXT_BYTES_MIN;

	while (size * 2 <= wish && size < SHM_TEXT_BYTES_MAX)
		size *= 2;
	return size;
}

/* Maps at least so many bytes; under the lock. */
static CUresult map(struct text *text, uint64_t address, uint64_t size)
{
	uint64_t wanted = (sizeof(struct shm_text) + size + PAGE - 1) & ~(PAGE - 1);
	struct wire_message request = {.type = WIRE_MAP_HOST,
		.range = {.address = address + text->mapped, .bytes = wanted - text->mapped}};
	CUresult r;

	if (wanted <= text->mapped)
		return CUDA_SUCCESS;
	r = map_host_own(&request, address + text->mapped, wanted - text->mapped);
	if (r == CUDA_SUCCESS)
		text->mapped = wanted;
	return r;
}

/* Under the lock. */
static CUresult make(struct text *text, uint64_t wish)
{
	const struct connection *c = &session_self()->connection;
	uint64_t address = shm_text_address(c->window_base, c->device_bytes, c->host_bytes);
	struct shm_text *ring = (struct shm_text *)(uintptr_t)address;
	CUresult r = address ? map(text, address, ring_bytes(wish)) : CUDA_ERROR_NOT_SUPPORTED;

	if (r != CUDA_SUCCESS)
		return r;
	ring->magic = SHM_TEXT_MAGIC;
	ring->bytes = text->bytes = ring_bytes(wish);
	word_set(&text->settled, word_acquire(&c->view.server->generation));
	atomic_store(&text->ring, ring);
	lost_watch(end);
	return CUDA_SUCCESS;
}

/* Under the lock. Positions of records depend on the size. */
static CUresult make_unused(struct text *text, uint64_t wish)
{
	return text_is_used() ? CUDA_ERROR_INVALID_VALUE : make(text, wish);
}

CUresult text_open(uint64_t wish)
{
	struct text *text = &session_self()->text;
	CUresult r;

	pthread_mutex_lock(&text->lock);
	r = text_is_open() ? CUDA_SUCCESS : make_unused(text, wish);
	if (r == CUDA_SUCCESS)
		word_set(&text->prints, 1);
	pthread_mutex_unlock(&text->lock);
	return r;
}

CUresult text_resize(uint64_t wish)
{
	struct text *text = &session_self()->text;
	CUresult r;

	pthread_mutex_lock(&text->lock);
	r = make_unused(text, wish);
	pthread_mutex_unlock(&text->lock);
	return r;
}

CUresult text_open_small(void)
{
	struct text *text = &session_self()->text;
	CUresult r;

	pthread_mutex_lock(&text->lock);
	r = atomic_load(&text->ring) ? CUDA_SUCCESS : make(text, SHM_TEXT_BYTES_MIN);
	pthread_mutex_unlock(&text->lock);
	return r;
}

bool text_is_open(void)
{
	return word_acquire(&session_self()->text.prints);
}

bool text_is_used(void)
{
	struct shm_text *ring = atomic_load(&session_self()->text.ring);

	return ring && word_acquire(&ring->head);
}
