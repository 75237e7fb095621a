// See file.h.

#include "client/trace/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/state/descriptor.h"
#include "client/state/file.h"
#include "client/state/log.h"
#include "client/state/uncancelled.h"

/* Of each of two pieces: one is filled while the other one is written. */
#define PIECE_BYTES (UINT64_C(4) << 20)

static const char end[] = "\n]\n";
#define END_BYTES (sizeof(end) - 1)

static struct {
	char path[PATH_MAX];
	int fd;
	uint64_t bytes; /* without the array's end */
	char *writing;
	/* Under the lock. */
	char *filling;
	size_t used;
	uint64_t lost;
} file = {.fd = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int make(const char *path)
{
	return descriptor_above_standard(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}

/* A child of a traced program finds its parent's file. */
static int make_some(const char *path)
{
	int fd;

	snprintf(file.path, sizeof(file.path), "%s", path);
	fd = make(file.path);
	if (fd < 0 && errno == EEXIST) {
		snprintf(file.path, sizeof(file.path), "%s.%d", path, (int)getpid());
		fd = make(file.path);
	}
	return fd;
}

static bool make_pieces(void)
{
	if (!file.filling)
		file.filling = malloc(PIECE_BYTES + END_BYTES);
	if (!file.writing)
		file.writing = malloc(PIECE_BYTES + END_BYTES);
	return file.filling && file.writing;
}

bool trace_file_open(const char *path)
{
	if (!make_pieces())
		errno = ENOMEM;
	else
		file.fd = make_some(path);
	file.used = file.bytes = file.lost = 0;
	/* An empty array, until the first write takes its place. */
	if (file.fd >= 0 && file_write_all(file.fd, "[]\n", 3, 0)) {
		client_log(CLIENT_LOG_INFO, "trace in %.400s", file.path);
		return true;
	}
	client_log(CLIENT_LOG_ERROR, "there is no trace: %.200s: %s", path, strerror(errno));
	trace_file_close();
	return false;
}

void trace_file_begin(struct trace_line *ret_line)
{
	pthread_mutex_lock(&lock);
	if (PIECE_BYTES - file.used < LINE_BYTES) {
		++file.lost;
		*ret_line = (struct trace_line){0};
		return;
	}
	*ret_line = (struct trace_line){.text = file.filling + file.used, .room = LINE_BYTES};
	line_add(ret_line, "%s", file.bytes + file.used ? ",\n" : "[\n");
}

void trace_file_end(const struct trace_line *line)
{
	file.used += line->used;
	pthread_mutex_unlock(&lock);
}

static size_t used_room(void)
{
	size_t used;

	pthread_mutex_lock(&lock);
	used = file.used;
	pthread_mutex_unlock(&lock);
	return used;
}

bool trace_file_has_text(void)
{
	return used_room() > 0;
}

bool trace_file_is_crowded(void)
{
	return used_room() > PIECE_BYTES / 2;
}

uint64_t trace_file_lost(void)
{
	uint64_t lost;

	pthread_mutex_lock(&lock);
	lost = file.lost;
	file.lost = 0;
	pthread_mutex_unlock(&lock);
	return lost;
}

/* The events that were written before stay, with the array's end behind them. */
static void give_up(uint64_t bytes)
{
	client_log(CLIENT_LOG_ERROR, "the trace ends here: %.300s cannot be written: %s", file.path,
		strerror(errno));
	if (ftruncate(file.fd, (off_t)bytes) < 0 ||
		!file_write_all(file.fd, bytes ? end : "[]\n", bytes ? END_BYTES : 3, bytes))
		client_log(CLIENT_LOG_ERROR, "%.300s has no end", file.path);
	trace_file_close();
}

/* Takes the text away from those who fill it. Return: its bytes */
static size_t take(void)
{
	char *full;
	size_t used;

	pthread_mutex_lock(&lock);
	full = file.filling;
	used = file.used;
	if (used) {
		file.filling = file.writing;
		file.writing = full;
		/* trace_file_begin() looks at both. */
		file.bytes += used;
		file.used = 0;
	}
	pthread_mutex_unlock(&lock);
	return used;
}

bool trace_file_write(void)
{
	size_t used;

	if (file.fd < 0)
		return false;
	used = take();
	if (!used)
		return true;
	memcpy(file.writing + used, end, END_BYTES);
	if (file_write_all(file.fd, file.writing, used + END_BYTES, file.bytes - used))
		return true;
	give_up(file.bytes - used);
	return false;
}

void trace_file_close(void)
{
	if (file.fd >= 0)
		uncancelled_close(file.fd);
	file.fd = -1;
}
