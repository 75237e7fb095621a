// The compiler of a machine without a device. Its texts are members of a fat binary, of the kind
// for a device's texts: a line, followed by the shared object that is the result.
//
//   host-text FIFO\n         begins when somebody opens that FIFO for writing, and ends when the
//                            FIFO is closed: so tests decide the duration
//   host-text\n              takes no time
//   host-text-crash\n        crashes; with a path only if that file can be created
//   host-text-spin\n         computes for ever
//   host-text-eat\n          allocates as much memory as possible
//   host-text-look PATH\n    writes the process's identity and resources to that file
//
// No state; any thread.

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/backend/fatbin.h"
#include "tests/host/host.h"
#include "server/backend/image.h"

#define KIND_TEXT  1
#define FIRST_LINE "host-text"
#define BITE	   (UINT64_C(8) << 20)

/* The first text of a fat binary that was checked; NULL if there is none. */
static const char *find_text(const uint8_t *image, size_t *ret_bytes)
{
	struct fatbin_header header;
	struct fatbin_entry entry;
	uint64_t at, end;

	memcpy(&header, image, sizeof(header));
	end = header.header_bytes + header.payload_bytes;
	for (at = header.header_bytes; at < end; at += entry.header_bytes + entry.payload_bytes) {
		memcpy(&entry, image + at, sizeof(entry));
		if (entry.kind != KIND_TEXT)
			continue;
		*ret_bytes = entry.payload_bytes;
		return (const char *)image + at + entry.header_bytes;
	}
	return NULL;
}

struct text {
	char what[16];	     /* of the first line, after the name; "": nothing */
	char path[PATH_MAX]; /* "": none */
	const char *object;
	size_t bytes;
};

/* Return: false if this is no text */
static bool parse(const char *at, size_t bytes, struct text *ret_text)
{
	const char *newline = memchr(at, '\n', bytes), *word = at + strlen(FIRST_LINE), *blank;
	size_t length;

	*ret_text = (struct text){0};
	if (!newline || newline < word || memcmp(at, FIRST_LINE, strlen(FIRST_LINE)) != 0)
		return false;
	blank = memchr(word, ' ', (size_t)(newline - word));
	length = (size_t)((blank ? blank : newline) - word);
	if (length >= sizeof(ret_text->what))
		return false;
	memcpy(ret_text->what, word, length);
	length = blank ? (size_t)(newline - blank) - 1 : 0;
	if (length >= sizeof(ret_text->path))
		return false;
	if (length)
		memcpy(ret_text->path, blank + 1, length);
	ret_text->object = newline + 1;
	ret_text->bytes = bytes - (size_t)(newline + 1 - at);
	return true;
}

/* Until the writer closes the FIFO. */
static void wait_for(const char *fifo)
{
	int fd = open(fifo, O_RDONLY | O_CLOEXEC);
	ssize_t count;
	char byte;

	if (fd < 0)
		return;
	do
		count = read(fd, &byte, 1);
	while (count > 0 || (count < 0 && errno == EINTR));
	close(fd);
}

/* Without a core: the crash is on purpose. */
static void crash(const char *once)
{
	int fd = *once ? open(once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;

	if (*once && fd < 0)
		return;
	raise(SIGSEGV);
}

static void spin(void)
{
	for (volatile unsigned turns = 0;; turns++)
		;
}

/* Return: false when there is no more */
static bool eat(void)
{
	char *bite = malloc(BITE);

	if (bite)
		memset(bite, 1, BITE);
	return bite;
}

static void copy_lines(FILE *to, const char *path)
{
	FILE *from = fopen(path, "re");
	char line[512];

	while (from && fgets(line, sizeof(line), from))
		fputs(line, to);
	if (from)
		fclose(from);
}

/* The entries of /proc for this process, its open files by number, and the limits. */
static void look(const char *path)
{
	FILE *to = fopen(path, "we");
	char name[64], target[256];
	ssize_t length;

	if (!to)
		return;
	copy_lines(to, "/proc/self/status");
	copy_lines(to, "/proc/self/limits");
	for (int fd = 0; fd < 256; fd++) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		length = fd == fileno(to) ? -1 : readlink(name, target, sizeof(target) - 1);
		if (length > 0)
			fprintf(to, "File: %d %.*s\n", fd, (int)length, target);
	}
	fclose(to);
}

/* Return: CUDA_ERROR_OUT_OF_MEMORY if memory was the limit */
static CUresult behave(const struct text *text)
{
	if (!*text->what && *text->path)
		wait_for(text->path);
	if (strcmp(text->what, "-crash") == 0)
		crash(text->path);
	if (strcmp(text->what, "-spin") == 0)
		spin();
	if (strcmp(text->what, "-look") == 0)
		look(text->path);
	if (strcmp(text->what, "-eat") != 0)
		return CUDA_SUCCESS;
	while (eat())
		;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult refuse(char *log, size_t log_bytes)
{
	if (log && log_bytes)
		snprintf(log, log_bytes, "The host backend compiles only texts of its own.");
	return CUDA_ERROR_INVALID_PTX;
}

CUresult host_module_compile(const void *image, size_t bytes, uint64_t room,
	const struct wire_options *options, char *log, size_t log_bytes, void **ret_code, size_t *ret_bytes)
{
	size_t count = 0;
	const char *at = image_check(image, bytes) == IMAGE_FATBIN ? find_text(image, &count) : NULL;
	struct text text;
	CUresult result;
	void *code;

	(void)room;    /* nothing is compressed */
	(void)options; /* wishes for another compiler */
	if (!at || !parse(at, count, &text))
		return refuse(log, log_bytes);
	result = behave(&text);
	code = result ? NULL : malloc(text.bytes + 1);
	if (!code)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(code, text.object, text.bytes);
	*ret_code = code;
	*ret_bytes = text.bytes;
	return CUDA_SUCCESS;
}
