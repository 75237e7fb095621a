// See ask.h.

#include "client/link/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/place.h"
#include "protocol/socket.h"

/* More than the longest document. */
#define DOCUMENT_MAX (UINT32_C(1) << 20)

const char *ask_find(const char *text, const char *key)
{
	char pattern[32];
	int length = snprintf(pattern, sizeof(pattern), "\"%s\":", key);
	const char *at = strstr(text, pattern);

	return at ? at + length : NULL;
}

bool ask_number(const char *text, const char *key, uint64_t *ret_number)
{
	const char *value = ask_find(text, key);

	if (!value || *value < '0' || *value > '9')
		return false;
	*ret_number = strtoull(value, NULL, 10);
	return true;
}

bool ask_small(const char *text, const char *key, uint32_t *ret_number)
{
	uint64_t number;

	if (!ask_number(text, key, &number) || number > UINT32_MAX)
		return false;
	*ret_number = (uint32_t)number;
	return true;
}

bool ask_text(const char *text, const char *key, char *ret_text, size_t size)
{
	const char *value = ask_find(text, key);
	size_t length = value && *value == '"' ? strcspn(value + 1, "\"\\") : size;

	if (length >= size || value[1 + length] != '"')
		return false;
	memcpy(ret_text, value + 1, length);
	ret_text[length] = '\0';
	return true;
}

/* Return: a connected socket; -1 */
static int reach(unsigned number, unsigned patience_s)
{
	char path[PLACE_BYTES];
	int fd;

	return place_find_device(number, path) || socket_connect(path, patience_s, &fd) ? -1 : fd;
}

/* A document too long for a packet comes as a file. Return: the text, which the caller frees;
 * NULL */
static char *read_file(int fd)
{
	off_t size = lseek(fd, 0, SEEK_END);
	char *text;

	if (size < 0 || size > DOCUMENT_MAX)
		return NULL;
	text = malloc((size_t)size + 1);
	if (text && pread(fd, text, (size_t)size, 0) == size) {
		text[size] = '\0';
		return text;
	}
	free(text);
	return NULL;
}

static CUresult take_answer(struct packet *packet, char **ret_text)
{
	struct wire_message message;

	if (wire_decode(packet->bytes, packet->length, &message) || message.type != WIRE_ADMIN_REPLY)
		return CUDA_ERROR_MPS_RPC_FAILURE;
	*ret_text = packet->fd_count ? read_file(packet->fds[0]) : strdup(message.admin_reply.json);
	return (CUresult)message.admin_reply.code;
}

static CUresult converse(int fd, const struct wire_message *message, char **ret_text)
{
	struct packet *packet = malloc(sizeof(*packet));
	CUresult code = CUDA_ERROR_MPS_RPC_FAILURE;

	if (!packet)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!message_send(fd, message, NULL, 0) && !packet_receive(fd, packet)) {
		code = take_answer(packet, ret_text);
		packet_close_fds(packet);
	}
	free(packet);
	return code;
}

CUresult ask_service(unsigned number, const char *command, const struct wire_names *arguments,
	unsigned patience_s, char **ret_text)
{
	struct wire_message message = {.type = WIRE_ADMIN, .id = 1, .admin = {.command = command}};
	int fd = reach(number, patience_s);
	CUresult code;

	*ret_text = NULL;
	if (fd < 0)
		return CUDA_ERROR_MPS_CONNECTION_FAILED;
	if (arguments)
		message.admin.arguments = *arguments;
	code = converse(fd, &message, ret_text);
	close(fd);
	return code;
}
