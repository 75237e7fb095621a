// See logbook.h. A ring of lines under a lock. Writers only try the lock, as they may be anywhere,
// in a forked child too. Callbacks run without the lock.

#include "client/state/logbook.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINES	   48u
#define LINE_BYTES 512u
#define CALLBACKS  16u

static const char cut[] = "older messages are left out\n";
_Static_assert(LINES *LINE_BYTES + sizeof(cut) <= LOGBOOK_BYTES, "everything fits");

struct CUlogsCallbackEntry_st {
	CUlogsCallback callback;
	void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[LINES][LINE_BYTES]; /* guarded by lock, as the variables below */
static CUlogIterator next;	      /* message n is in line n % LINES */
static struct CUlogsCallbackEntry_st callbacks[CALLBACKS];

/* A line in the driver's form. */
static void make_line(char line[LINE_BYTES], const char *text, size_t length)
{
	struct timespec now;
	struct tm day;
	int n;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &day);
	n = snprintf(line, LINE_BYTES - 1, "[%02d:%02d:%02d.%03ld][%ld][CUDA][E] %.*s", day.tm_hour,
		day.tm_min, day.tm_sec, now.tv_nsec / 1000000, (long)syscall(SYS_gettid), (int)length, text);
	if (n < 0 || n > (int)LINE_BYTES - 2)
		n = n < 0 ? 0 : (int)LINE_BYTES - 2;
	memcpy(line + n, "\n", 2);
}

void logbook_note(const char *text, size_t length)
{
	struct CUlogsCallbackEntry_st copy[CALLBACKS];
	char message[LINE_BYTES];

	if (pthread_mutex_trylock(&lock) != 0)
		return;
	make_line(lines[next % LINES], text, length);
	next++;
	memcpy(copy, callbacks, sizeof(copy));
	pthread_mutex_unlock(&lock);
	for (unsigned int i = 0; i < CALLBACKS; ++i) {
		if (!copy[i].callback)
			continue;
		/* Each callback gets its own copy, because it may write there. */
		length = length < sizeof(message) ? length : sizeof(message) - 1;
		memcpy(message, text, length);
		message[length] = '\0';
		copy[i].callback(copy[i].data, CU_LOG_LEVEL_ERROR, message, length);
	}
}

CUresult logbook_register(CUlogsCallback callback, void *data, CUlogsCallbackHandle *ret_handle)
{
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < CALLBACKS && r != CUDA_SUCCESS; ++i) {
		if (callbacks[i].callback)
			continue;
		callbacks[i] = (struct CUlogsCallbackEntry_st){callback, data};
		if (ret_handle)
			*ret_handle = &callbacks[i];
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult logbook_unregister(CUlogsCallbackHandle handle)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < CALLBACKS; ++i) {
		if (handle != &callbacks[i] || !callbacks[i].callback)
			continue;
		callbacks[i].callback = NULL;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUlogIterator logbook_next(void)
{
	CUlogIterator n;

	pthread_mutex_lock(&lock);
	n = next;
	pthread_mutex_unlock(&lock);
	return n;
}

/* The first message from `from` on that fits together with all later messages. Under the lock. */
static CUlogIterator first_that_fits(CUlogIterator from, size_t size)
{
	CUlogIterator first = next;
	size_t bytes = 1;

	while (first > from) {
		bytes += strlen(lines[(first - 1) % LINES]);
		if (bytes + (first - 1 > from ? sizeof(cut) : 0) > size)
			break;
		--first;
	}
	return first;
}

size_t logbook_write(CUlogIterator from, char *buffer, size_t size, CUlogIterator *ret_next)
{
	CUlogIterator oldest, first;
	size_t length = 0;

	pthread_mutex_lock(&lock);
	oldest = next > LINES ? next - LINES : 0;
	first = first_that_fits(from < oldest ? oldest : from, size);
	if (first == next && from < next) {
		length = SIZE_MAX;
	} else if (first > from) {
		memcpy(buffer, cut, sizeof(cut) - 1);
		length = sizeof(cut) - 1;
	}
	for (CUlogIterator i = first; i < next; ++i) {
		size_t bytes = strlen(lines[i % LINES]);

		memcpy(buffer + length, lines[i % LINES], bytes);
		length += bytes;
	}
	if (length != SIZE_MAX && size > 0)
		buffer[length] = '\0';
	*ret_next = next;
	pthread_mutex_unlock(&lock);
	return length;
}
