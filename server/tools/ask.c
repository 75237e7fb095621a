// Questions to the service. See ask.h.

#include "server/tools/ask.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "protocol/socket.h"
#include "protocol/wire.h"

/* Deaths of daemons, in a row, that a ping survives. */
#define PING_TRIES 4u

int ask_find(const char *given, char path[PLACE_BYTES], char *ret_text, size_t text_size)
{
	if (given && *given) {
		snprintf(path, PLACE_BYTES, "%s", given);
	} else if (place_find(path) == PLACE_E_UNTRUSTED) {
		snprintf(ret_text, text_size,
			"%s is no place of the service: others than root and you can write in the folder "
			"that CUDA_MPS_PIPE_DIRECTORY names",
			path);
		return -EACCES;
	}
	return 0;
}

static char *read_document(int fd)
{
	struct stat status;
	char *text;

	if (fstat(fd, &status) < 0)
		return NULL;
	text = malloc((size_t)status.st_size + 1);
	if (!text || pread(fd, text, (size_t)status.st_size, 0) != status.st_size) {
		free(text);
		return NULL;
	}
	text[status.st_size] = '\0';
	return text;
}

/* For a refusal without a reason. */
static const char *refusal(int32_t code)
{
	switch (code) {
	case CUDA_ERROR_NOT_FOUND:
		return "there is no such session or program, or the service does not know the command";
	case CUDA_ERROR_NOT_PERMITTED:
		return "this is another user's";
	case CUDA_ERROR_INVALID_VALUE:
		return "the service does not understand the arguments";
	case CUDA_ERROR_OUT_OF_MEMORY:
		return "the service is out of memory";
	default:
		return "the service gives no reason";
	}
}

static void explain_refusal(const struct wire_admin_reply *reply, char *why, size_t size)
{
	json_t *json = reply->json ? json_loads(reply->json, 0, NULL) : NULL;
	const char *reason = json_string_value(json_object_get(json, "reason"));

	snprintf(why, size, "%s", reason ? reason : refusal(reply->code));
	json_decref(json);
}

static int take_answer(
	const struct wire_message *message, struct packet *packet, char **ret_json, char *why, size_t size)
{
	char *json;

	if (message->type != WIRE_ADMIN_REPLY)
		return -EPROTO;
	if (message->admin_reply.code) {
		explain_refusal(&message->admin_reply, why, size);
		return ASK_E_REFUSED;
	}
	if (!ret_json)
		return 0;
	json = packet->fd_count ? read_document(packet->fds[0]) : strdup(message->admin_reply.json);
	if (!json)
		return -ENOMEM;
	*ret_json = json;
	return 0;
}

static int converse(int fd, const char *command, const struct wire_names *arguments, struct packet *packet,
	char **ret_json, char *why, size_t size)
{
	struct wire_message message = {
		.type = WIRE_ADMIN, .id = 1, .admin = {.command = command, .arguments = *arguments}};
	int r = message_send(fd, &message, NULL, 0);

	if (r == PACKET_E_INVALID) {
		snprintf(why, size, "the words are too long");
		return ASK_E_REFUSED;
	}
	r = r ? r : packet_receive(fd, packet);
	if (r)
		return r == PACKET_E_AGAIN ? -ETIMEDOUT : r > 0 ? -ECONNRESET : r;
	r = wire_decode(packet->bytes, packet->length, &message)
		    ? -EPROTO
		    : take_answer(&message, packet, ret_json, why, size);
	packet_close_fds(packet);
	return r;
}

int ask(const char *path, const char *command, char **ret_json, char *ret_text, size_t text_size)
{
	return ask_with(path, command, &(struct wire_names){0}, ASK_SECONDS, ret_json, ret_text, text_size);
}

/* A daemon that dies loses the question, and the next daemon answers the next one. Return: as
 * ask() */
static int ping(const char *path, char **ret_json, char *ret_text, size_t text_size)
{
	int r = -ECONNRESET;

	for (unsigned tries = 0; tries < PING_TRIES && r == -ECONNRESET; tries++)
		r = ask(path, "ping", ret_json, ret_text, text_size);
	return r;
}

/* @ret_number: of the device at the path. Return: as ask() */
static int ask_one(const char *path, struct ask_devices *devices, unsigned *ret_number)
{
	char text[700], *answer = NULL;
	json_int_t number, count;
	json_t *root;
	int r = ping(path, &answer, text, sizeof(text));

	if (r)
		return r < 0 ? r : -EPROTO;
	root = json_loads(answer, 0, NULL);
	free(answer);
	number = json_integer_value(json_object_get(root, "number"));
	count = json_integer_value(json_object_get(root, "devices"));
	/* A service that does not say so has one. */
	devices->count = count > 0 && count <= (json_int_t)PLACE_DEVICES ? (unsigned)count : 1;
	*ret_number = number > 0 && number < (json_int_t)devices->count ? (unsigned)number : 0;
	if (json_is_string(json_object_get(root, "uuid")))
		snprintf(devices->uuid[*ret_number], sizeof(devices->uuid[0]), "%s",
			json_string_value(json_object_get(root, "uuid")));
	json_decref(root);
	return 0;
}

static bool is_there(const char *first, unsigned number, char path[PLACE_BYTES])
{
	return place_of_device(first, number, path) && !access(path, F_OK);
}

static bool has_company(const char *path)
{
	char beside[PLACE_BYTES];

	for (unsigned i = 1; i < PLACE_DEVICES; i++)
		if (is_there(path, i, beside))
			return true;
	return false;
}

int ask_devices(const char *path, bool quick, struct ask_devices *ret_devices)
{
	char beside[PLACE_BYTES];
	unsigned number = 0;
	int r;

	*ret_devices = (struct ask_devices){.count = 1};
	if (quick && !has_company(path))
		return 0;
	r = ask_one(path, ret_devices, &number);
	ret_devices->number = number;
	/* The first may be missing. */
	for (unsigned i = 1; i < (r ? PLACE_DEVICES : ret_devices->count); i++)
		if (is_there(path, i, beside) && !ask_one(beside, ret_devices, &number))
			r = 0;
	return r;
}

int ask_with(const char *path, const char *command, const struct wire_names *arguments, unsigned seconds,
	char **ret_json, char *ret_text, size_t text_size)
{
	struct packet *packet = malloc(sizeof(*packet));
	char why[2048];
	int fd = -1, r;

	r = packet ? socket_connect(path, seconds, &fd) : -ENOMEM;
	r = r ? r : converse(fd, command, arguments, packet, ret_json, why, sizeof(why));
	if (fd >= 0)
		close(fd);
	free(packet);
	if (r)
		snprintf(ret_text, text_size, "the service at %s %s: %s", path,
			r > 0	 ? "refuses"
			: fd < 0 ? "cannot be reached"
				 : "does not answer",
			r > 0 ? why : strerror(-r));
	return r;
}

int ask_any(const char *path, char *ret_text, size_t text_size)
{
	struct ask_devices devices;
	int r = ping(path, NULL, ret_text, text_size);

	return r < 0 && !ask_devices(path, false, &devices) ? 0 : r;
}
