// See text.h. Runs on the program's threads. Text of kernels goes through the program's own stdio
// and is flushed, as the driver does, so that it stays in order with the program's own output.
//
// Locks: standard output's own lock comes first, so that a program that holds it across a call of
// the library cannot deadlock with itself. `lock` guards the ring's size and the reader's position,
// but for a first look without the lock.

#include "client/text/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/link/connect.h"
#include "client/link/lost.h"
#include "client/link/map.h"
#include "client/state/log.h"
#include "client/text/render.h"
#include "shm/text.h"

#define PAGE UINT64_C(4096)
#define WORD sizeof(uint64_t)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shm_text *_Atomic ring; /* NULL: none */
static uint64_t bytes, mapped;	      /* the ring's size; mapped bytes, with the head */
static word64 taken;		      /* position of the reader */
static word32 settled;		      /* latest generation before which no record is unfinished */
static word32 prints;		      /* the ring is for printf() of kernels, too */

/* ---- records ---- */

static word64 *word_at(struct shm_text *text, uint64_t position)
{
	return &text->words[(position & (bytes - 1)) / WORD];
}

/* The first word of the record at a position, 0 if there is none yet. */
static uint64_t first_word(struct shm_text *text, uint64_t position)
{
	uint64_t first = word_acquire(word_at(text, position));
	uint32_t size = SHM_TEXT_SIZE(first);

	if (first != SHM_TEXT_FIRST(size, SHM_TEXT_KIND(first), position))
		return 0;
	return size >= WORD && size % WORD == 0 && size <= bytes ? first : 0;
}

/* The first record from a position on, which is not behind `head`; `head` if there is none. */
static uint64_t next_record(struct shm_text *text, uint64_t position, uint64_t head)
{
	while (head - position >= WORD && !first_word(text, position))
		position += WORD;
	return head - position >= WORD ? position : head;
}

/* Continues at the oldest intact record if kernels have written more than a lap since. */
static void catch_up(struct shm_text *text, uint64_t head)
{
	uint64_t position = word_relaxed(&taken);

	/* Kernels have corrupted the head: records that were read do not come again. */
	if (head < position)
		word_set(&taken, head);
	if (head < position || head - position <= bytes)
		return;
	client_log(CLIENT_LOG_INFO, "text of kernels was overwritten before it was read: "
				    "CU_LIMIT_PRINTF_FIFO_SIZE gives it more room");
	word_set(&taken, next_record(text, head - bytes, head));
}

/* A copy of a record; NULL without memory. The caller frees it. @ret_words: of its body */
static uint64_t *copy_record(struct shm_text *text, uint64_t position, uint64_t first, size_t *ret_words)
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
static bool take(struct shm_text *text)
{
	uint64_t head = word_acquire(&text->head), position, first, *body;
	size_t words;

	catch_up(text, head);
	position = word_relaxed(&taken);
	first = position < head ? first_word(text, position) : 0;
	/* The kernel reserves room for the whole record. */
	if (!first || SHM_TEXT_SIZE(first) > head - position)
		return false;
	body = copy_record(text, position, first, &words);
	word_set(&taken, position + SHM_TEXT_SIZE(first));
	/* A record that was overwritten meanwhile is dropped. */
	if (body && word_acquire(&text->head) - position <= bytes)
		render(SHM_TEXT_KIND(first), body, words);
	free(body);
	return true;
}

static void take_all(struct shm_text *text)
{
	uint64_t before = word_relaxed(&taken);

	while (take(text))
		continue;
	if (word_relaxed(&taken) != before)
		fflush(stdout);
}

/* Skips room whose records will never be finished. */
static void take_whatever(struct shm_text *text)
{
	uint64_t head = word_acquire(&text->head), position;

	take_all(text);
	/* The head goes back only if kernels have corrupted it. */
	while ((position = word_relaxed(&taken)) < head && word_acquire(&text->head) >= head) {
		client_log(CLIENT_LOG_INFO, "unfinished text of kernels is lost");
		word_set(&taken, head - position > WORD ? next_record(text, position + WORD, head) : head);
		take_all(text);
	}
}

/* Return: true if the caller has both locks */
static bool try_locks(void)
{
	if (ftrylockfile(stdout))
		return false;
	if (!pthread_mutex_trylock(&lock))
		return true;
	funlockfile(stdout);
	return false;
}

static bool take_locks(void)
{
	flockfile(stdout);
	pthread_mutex_lock(&lock);
	return true;
}

static void flush_with(struct shm_text *text, bool (*locking)(void), void (*taking)(struct shm_text *text))
{
	int cancelable;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	if (locking()) {
		taking(text);
		pthread_mutex_unlock(&lock);
		funlockfile(stdout);
	}
	pthread_setcancelstate(cancelable, NULL);
}

static bool has_more(struct shm_text *text)
{
	return text && word_acquire(&text->head) != word_acquire(&taken);
}

void text_flush(void)
{
	struct shm_text *text = atomic_load(&ring);

	if (has_more(text))
		flush_with(text, take_locks, take_all);
}

void text_settle(void)
{
	struct shm_text *text = atomic_load(&ring);
	uint32_t generation = word_acquire(&connection.view.server->generation);

	if (!text || word_relaxed(&settled) == generation) {
		text_flush();
		return;
	}
	flush_with(text, take_locks, take_whatever);
	word_set(&settled, generation);
}

/* The session has ended. The caller may hold locks, so it does not wait for a thread that writes:
 * the program's next call tries again. */
static void end(void)
{
	struct shm_text *text = atomic_load(&ring);

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
static CUresult map(uint64_t address, uint64_t size)
{
	uint64_t wanted = (sizeof(struct shm_text) + size + PAGE - 1) & ~(PAGE - 1);
	struct wire_message request = {
		.type = WIRE_MAP_HOST, .range = {.address = address + mapped, .bytes = wanted - mapped}};
	CUresult r;

	if (wanted <= mapped)
		return CUDA_SUCCESS;
	r = map_host_own(&request, address + mapped, wanted - mapped);
	if (r == CUDA_SUCCESS)
		mapped = wanted;
	return r;
}

/* Under the lock. */
static CUresult make(uint64_t wish)
{
	uint64_t address =
		shm_text_address(connection.window_base, connection.device_bytes, connection.host_bytes);
	struct shm_text *text = (struct shm_text *)(uintptr_t)address;
	CUresult r = address ? map(address, ring_bytes(wish)) : CUDA_ERROR_NOT_SUPPORTED;

	if (r != CUDA_SUCCESS)
		return r;
	text->magic = SHM_TEXT_MAGIC;
	text->bytes = bytes = ring_bytes(wish);
	word_set(&settled, word_acquire(&connection.view.server->generation));
	atomic_store(&ring, text);
	lost_watch(end);
	return CUDA_SUCCESS;
}

/* Under the lock. Positions of records depend on the size. */
static CUresult make_unused(uint64_t wish)
{
	return text_is_used() ? CUDA_ERROR_INVALID_VALUE : make(wish);
}

CUresult text_open(uint64_t wish)
{
	CUresult r;

	pthread_mutex_lock(&lock);
	r = text_is_open() ? CUDA_SUCCESS : make_unused(wish);
	if (r == CUDA_SUCCESS)
		word_set(&prints, 1);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult text_resize(uint64_t wish)
{
	CUresult r;

	pthread_mutex_lock(&lock);
	r = make_unused(wish);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult text_open_small(void)
{
	CUresult r;

	pthread_mutex_lock(&lock);
	r = atomic_load(&ring) ? CUDA_SUCCESS : make(SHM_TEXT_BYTES_MIN);
	pthread_mutex_unlock(&lock);
	return r;
}

bool text_is_open(void)
{
	return word_acquire(&prints);
}

bool text_is_used(void)
{
	struct shm_text *text = atomic_load(&ring);

	return text && word_acquire(&text->head);
}
