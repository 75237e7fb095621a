// See question.h. The document is JSON without blanks, as the service writes it. A quote within a
// text has a backslash before it, so `"key":` is always a key.

#include "client/nvml/question.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/place.h"
#include "protocol/socket.h"
#include "protocol/wire.h"

#define PATIENCE_S 5
/* More than the longest document. */
#define DOCUMENT_MAX (UINT32_C(1) << 20)

/* Return: the begin of a key's value; NULL without the key */
static const char *find_value(const char *text, const char *key)
{
	char pattern[32];
	int length = snprintf(pattern, sizeof(pattern), "\"%s\":", key);
	const char *at = strstr(text, pattern);

	return at ? at + length : NULL;
}

static bool read_number(const char *text, const char *key, uint64_t *ret_number)
{
	const char *value = find_value(text, key);

	if (!value || *value < '0' || *value > '9')
		return false;
	*ret_number = strtoull(value, NULL, 10);
	return true;
}

/* Rejects texts with an escape: the driver's names of devices have none. */
static bool read_text(const char *text, const char *key, char *ret_text, size_t size)
{
	const char *value = find_value(text, key);
	size_t length = value && *value == '"' ? strcspn(value + 1, "\"\\") : size;

	if (length >= size || value[1 + length] != '"')
		return false;
	memcpy(ret_text, value + 1, length);
	ret_text[length] = '\0';
	return true;
}

static bool read_small(const char *text, const char *key, uint32_t *ret_number)
{
	uint64_t number;

	if (!read_number(text, key, &number) || number > UINT32_MAX)
		return false;
	*ret_number = (uint32_t)number;
	return true;
}

static bool read_processes(const char *text, struct seen *seen)
{
	const char *at = find_value(text, "processes"), *end = at ? strchr(at, ']') : NULL;

	seen->process_count = 0;
	while (end && (at = strchr(at, '{')) && at < end) {
		struct seen_process *process = &seen->processes[seen->process_count];

		if (seen->process_count == SEEN_PROCESSES_MAX || !read_small(at, "pid", &process->pid) ||
			!read_number(at, "memory_bytes", &process->bytes))
			return false;
		seen->process_count++;
		at++;
	}
	return end;
}

/* Without these keys, the service has a single device. */
static void read_place(const char *text, struct seen *seen)
{
	if (!read_small(text, "number", &seen->number) || !read_small(text, "devices", &seen->devices) ||
		!seen->devices || seen->devices > PLACE_DEVICES || seen->number >= seen->devices) {
		seen->number = 0;
		seen->devices = 1;
	}
}

int question_parse(const char *text, struct seen *seen)
{
	read_place(text, seen);
	return read_text(text, "name", seen->name, sizeof(seen->name)) &&
			       read_text(text, "uuid", seen->uuid, sizeof(seen->uuid)) &&
			       read_text(text, "pci", seen->pci, sizeof(seen->pci)) &&
			       read_small(text, "driver_version", &seen->driver_version) &&
			       read_small(text, "major", &seen->major) &&
			       read_small(text, "minor", &seen->minor) &&
			       read_number(text, "total_bytes", &seen->total_bytes) &&
			       read_number(text, "used_bytes", &seen->used_bytes) &&
			       read_processes(text, seen)
		       ? 0
		       : -1;
}

/* Return: a connected socket; -1 */
static int reach(unsigned number)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[PLACE_BYTES];
	int fd;

	if (place_find_device(number, path) || strlen(path) >= sizeof(address.sun_path))
		return -1;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* A document too long for a packet comes as a file. Return: the text, which the caller frees;
 * NULL */
static char *read_file(int fd)
{
	struct stat status;
	char *text;

	if (fstat(fd, &status) < 0 || status.st_size < 0 || status.st_size > DOCUMENT_MAX)
		return NULL;
	text = malloc((size_t)status.st_size + 1);
	if (text && pread(fd, text, (size_t)status.st_size, 0) == status.st_size) {
		text[status.st_size] = '\0';
		return text;
	}
	free(text);
	return NULL;
}

static char *take_document(struct packet *packet)
{
	struct wire_message message;

	if (wire_decode(packet->bytes, packet->length, &message) || message.type != WIRE_ADMIN_REPLY ||
		message.admin_reply.code)
		return NULL;
	return packet->fd_count ? read_file(packet->fds[0]) : strdup(message.admin_reply.json);
}

static char *converse(int fd)
{
	const struct wire_message message = {.type = WIRE_ADMIN, .id = 1, .admin = {.command = "seen"}};
	struct packet *packet = malloc(sizeof(*packet));
	char *text = NULL;

	if (packet && !message_send(fd, &message, NULL, 0) && !packet_receive(fd, packet)) {
		text = take_document(packet);
		packet_close_fds(packet);
	}
	free(packet);
	return text;
}

int question_ask(unsigned number, struct seen *ret_seen)
{
	int fd = reach(number), r;
	char *text = fd < 0 ? NULL : converse(fd);

	if (fd >= 0)
		close(fd);
	r = text ? question_parse(text, ret_seen) : -1;
	free(text);
	return r;
}

int question_ask_any(struct seen *ret_seen)
{
	int r = -1;

	for (unsigned i = 0; r && i < PLACE_DEVICES; i++)
		r = question_ask(i, ret_seen);
	return r;
}
