// The compiler of a machine without a device. Its texts are members of a fat binary, of the kind
// that hold a device's texts: one line, and behind it the shared object that it becomes.
//
//   host-text FIFO\n    the compilation begins when somebody opens that FIFO for writing, and ends
//                       when it is closed: so tests decide how long it takes
//   host-text\n         it takes no time
//
// No state; any thread.

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/backend/fatbin.h"
#include "server/backend/host/host.h"
#include "server/backend/image.h"

#define KIND_TEXT  1
#define FIRST_LINE "host-text"

bool host_module_is_source(const void *image, size_t bytes)
{
	return image_check(image, bytes) == IMAGE_FATBIN;
}

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

/* Takes a text apart. Return: the shared object in it, NULL if it is no text. @ret_fifo: "":
 * none */
static const char *parse(const char *text, size_t *bytes, char ret_fifo[PATH_MAX])
{
	const char *newline = memchr(text, '\n', *bytes), *at = text + strlen(FIRST_LINE);
	size_t length;

	if (!newline || newline < at || memcmp(text, FIRST_LINE, strlen(FIRST_LINE)) != 0)
		return NULL;
	at += *at == ' ';
	length = (size_t)(newline - at);
	if (length >= PATH_MAX)
		return NULL;
	memcpy(ret_fifo, at, length);
	ret_fifo[length] = '\0';
	*bytes -= (size_t)(newline + 1 - text);
	return newline + 1;
}

/* Until whoever has it open for writing closes it. */
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

static CUresult refuse(char *log, size_t log_bytes)
{
	if (log && log_bytes)
		snprintf(log, log_bytes, "The host backend compiles only texts of its own.");
	return CUDA_ERROR_INVALID_PTX;
}

CUresult host_module_compile(const void *image, size_t bytes, const struct wire_options *options, char *log,
	size_t log_bytes, void **ret_code, size_t *ret_bytes)
{
	size_t count = 0;
	const char *text = host_module_is_source(image, bytes) ? find_text(image, &count) : NULL;
	char fifo[PATH_MAX] = "";
	void *code;

	(void)options; /* wishes for another compiler */
	text = text ? parse(text, &count, fifo) : NULL;
	if (!text)
		return refuse(log, log_bytes);
	code = malloc(count + 1);
	if (!code)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (*fifo)
		wait_for(fifo);
	memcpy(code, text, count);
	*ret_code = code;
	*ret_bytes = count;
	return CUDA_SUCCESS;
}
