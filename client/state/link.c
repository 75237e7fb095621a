// See link.h. Runs on the program's threads.

#include "client/state/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/link/control.h"
#include "client/state/image.h"
#include "client/state/log.h"
#include "client/state/slab.h"
#include "client/state/uncancelled.h"

#define LINK_MAGIC UINT32_C(0x4c494e4b)
#define LINK_SHIFT 12
#define LINKS	   4096u
/* Times that the library sends all inputs again to a service that has dropped the link. */
#define TRIES 3

/* Stored to be sent again. */
struct input {
	struct input *next;
	CUjitInputType type;
	struct wire_option options[JIT_OPTIONS_MAX];
	uint32_t option_count;
	char *name;
	size_t bytes;
	uint8_t data[];
};

struct client_link {
	struct slab_object object;
	uint32_t number; /* for the service */
	pthread_mutex_t lock;
	struct jit jit;
	struct input *first, **end;
	uint32_t count; /* of accepted inputs */
	void *image;	/* NULL: not complete */
	size_t image_bytes;
};

_Static_assert(sizeof(struct client_link) <= 1u << LINK_SHIFT, "a link fits its place");

static struct slab link_slab = SLAB_INIT(LINK_SHIFT, LINKS);

struct client_link *link_find(CUlinkState handle)
{
	return slab_find(&link_slab, handle, LINK_MAGIC);
}

CUresult link_create(const struct jit *jit, CUlinkState *ret_handle)
{
	struct client_link *link = slab_take(&link_slab);

	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	link->number = slab_index(&link_slab, link) + 1;
	link->jit = *jit;
	link->end = &link->first;
	pthread_mutex_init(&link->lock, NULL);
	atomic_store_explicit(&link->object.live, LINK_MAGIC, memory_order_release);
	*ret_handle = (CUlinkState)link;
	return CUDA_SUCCESS;
}

static struct input *input_free(struct input *input)
{
	if (input)
		free(input->name);
	free(input);
	return NULL;
}

static struct input *input_new(
	CUjitInputType type, const void *data, size_t bytes, const char *name, const struct jit *own)
{
	struct input *input = calloc(1, sizeof(*input) + bytes);

	if (!input)
		return NULL;
	input->name = strdup(name ? name : "");
	if (!input->name)
		return input_free(input);
	input->type = type;
	input->option_count = own->count;
	memcpy(input->options, own->options, own->count * sizeof(own->options[0]));
	input->bytes = bytes;
	memcpy(input->data, data, bytes);
	return input;
}

/* ---- requests to the service ---- */

/* A request for the link after so many inputs. */
static struct wire_message request_at(const struct client_link *link, enum wire_type type, uint32_t position)
{
	struct wire_message request = {.type = type};

	request.link.link = link->number;
	request.link.position = position;
	request.link.options = (struct wire_options){link->jit.options, link->jit.count};
	return request;
}

/* Asks the service, and fills the program's log buffers. */
static CUresult ask(struct client_link *link, struct wire_message *request, uint64_t *ret_value, int *ret_fd)
{
	struct control_answer *answer = control_answer_new();
	const struct wire_reply *reply;
	CUresult r;

	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = control_call(request, answer);
	reply = &answer->message.reply;
	if (answer->message.type == WIRE_REPLY && r != CUDA_ERROR_ILLEGAL_STATE && reply->names.count == 2)
		jit_report(&link->jit, reply->names.at[1], reply->names.at[0]);
	if (r == CUDA_SUCCESS && ret_value)
		*ret_value = reply->values.count ? reply->values.at[0] : 0;
	if (r == CUDA_SUCCESS && ret_fd)
		*ret_fd = packet_take_fd(&answer->packet, 0);
	control_answer_free(answer);
	return r;
}

static CUresult send_input(struct client_link *link, const struct input *input, uint32_t position)
{
	struct wire_message request = request_at(link, WIRE_LINK_ADD, position);
	struct image image;
	CUresult r = image_copy(input->data, input->bytes, false, &image);

	if (r != CUDA_SUCCESS)
		return r;
	request.link.type = (uint32_t)input->type;
	request.link.bytes = input->bytes;
	request.link.file = image.file;
	request.link.name = input->name;
	request.link.own = (struct wire_options){input->options, input->option_count};
	r = ask(link, &request, NULL, NULL);
	image_close(&image);
	return r;
}

/* Sends all accepted inputs again. */
static CUresult send_again(struct client_link *link)
{
	CUresult r = CUDA_SUCCESS;
	uint32_t position = 0;

	for (const struct input *input = link->first; input && r == CUDA_SUCCESS; input = input->next)
		r = send_input(link, input, position++);
	return r;
}

/* The service's file is valid only while open, so this copies its bytes. */
static CUresult copy_image(int fd, uint64_t bytes, void **ret_image)
{
	struct statx status;
	uint64_t at = 0;
	uint8_t *image;

	if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &status) < 0 || bytes == 0 ||
		status.stx_size < bytes)
		return CUDA_ERROR_UNKNOWN;
	image = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (image == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	while (at < bytes) {
		ssize_t n = pread(fd, image + at, bytes - at, (off_t)at);

		if (n <= 0) {
			munmap(image, bytes);
			return CUDA_ERROR_UNKNOWN;
		}
		at += (uint64_t)n;
	}
	*ret_image = image;
	return CUDA_SUCCESS;
}

static CUresult receive_image(struct client_link *link)
{
	struct wire_message request = request_at(link, WIRE_LINK_COMPLETE, link->count);
	uint64_t bytes = 0;
	int fd = -1;
	CUresult r = ask(link, &request, &bytes, &fd);

	if (r == CUDA_SUCCESS)
		r = copy_image(fd, bytes, &link->image);
	if (fd >= 0)
		uncancelled_close(fd);
	if (r == CUDA_SUCCESS)
		link->image_bytes = bytes;
	return r;
}

/* Adds an input or, without an input, links. If the service has dropped the link, sends everything
 * again. */
static CUresult advance(struct client_link *link, const struct input *input)
{
	int saved = errno;
	CUresult r;

	jit_start_clock(&link->jit);
	for (int i = 0;; ++i) {
		r = input ? send_input(link, input, link->count) : receive_image(link);
		if (r != CUDA_ERROR_ILLEGAL_STATE || i == TRIES)
			break;
		r = send_again(link);
		if (r != CUDA_SUCCESS && r != CUDA_ERROR_ILLEGAL_STATE)
			break;
	}
	jit_report_time(&link->jit);
	errno = saved;
	return r == CUDA_ERROR_ILLEGAL_STATE ? CUDA_ERROR_OUT_OF_MEMORY : r;
}

/* ---- calls ---- */

static void append(struct client_link *link, struct input *input)
{
	*link->end = input;
	link->end = &input->next;
	link->count++;
}

CUresult link_add(struct client_link *link, CUjitInputType type, const void *data, size_t bytes,
	const char *name, const struct jit *own)
{
	struct input *input;
	CUresult r;

	if (bytes > LINK_INPUT_BYTES_MAX) {
		client_log(CLIENT_LOG_ERROR, "an input of the device linker is longer than %llu MiB",
			(unsigned long long)(LINK_INPUT_BYTES_MAX >> 20));
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	input = input_new(type, data, bytes, name, own);
	if (!input)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&link->lock);
	r = link->image ? CUDA_ERROR_INVALID_VALUE : advance(link, input);
	if (r == CUDA_SUCCESS)
		append(link, input);
	else
		input_free(input);
	pthread_mutex_unlock(&link->lock);
	return r;
}

CUresult link_complete(struct client_link *link, void **ret_image, size_t *ret_bytes)
{
	CUresult r;

	pthread_mutex_lock(&link->lock);
	r = link->image ? CUDA_ERROR_INVALID_HANDLE : advance(link, NULL);
	if (r == CUDA_SUCCESS) {
		*ret_image = link->image;
		if (ret_bytes)
			*ret_bytes = link->image_bytes;
	}
	pthread_mutex_unlock(&link->lock);
	return r;
}

CUresult link_destroy(struct client_link *link)
{
	struct wire_message request = request_at(link, WIRE_LINK_DROP, 0);
	uint32_t live = LINK_MAGIC;
	struct input *input;

	if (!atomic_compare_exchange_strong(&link->object.live, &live, 0))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&link->lock);
	/* The service drops a link that never had an input, or whose destruction it does not hear
	 * of, by itself. */
	if (link->count)
		ask(link, &request, NULL, NULL);
	while ((input = link->first)) {
		link->first = input->next;
		input_free(input);
	}
	if (link->image)
		munmap(link->image, link->image_bytes);
	pthread_mutex_unlock(&link->lock);
	pthread_mutex_destroy(&link->lock);
	slab_give(&link_slab, link);
	return CUDA_SUCCESS;
}
