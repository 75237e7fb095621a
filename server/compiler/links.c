// See links.h.

#include "server/compiler/links.h"

#include <stdlib.h>

#include "server/file.h"

struct link {
	TAILQ_ENTRY(link) link;
	uint32_t number;    /* the program's */
	uint32_t positions; /* inputs that were taken */
	struct backend_link *backend;
};

void links_init(struct links *links, const struct backend_ops *ops)
{
	*links = (struct links){.ops = ops};
	TAILQ_INIT(&links->list);
}

static void drop(struct links *links, struct link *link)
{
	TAILQ_REMOVE(&links->list, link, link);
	links->count--;
	links->ops->link_destroy(link->backend);
	free(link);
}

static struct link *find(struct links *links, uint32_t number)
{
	struct link *link;

	TAILQ_FOREACH (link, &links->list, link)
		if (link->number == number)
			break;
	return link;
}

static CUresult begin(struct links *links, const struct wire_link *wish, struct link **ret_link)
{
	struct link *link = calloc(1, sizeof(*link));
	CUresult code =
		link ? links->ops->link_create(&wish->options, &link->backend) : CUDA_ERROR_OUT_OF_MEMORY;

	if (code) {
		free(link);
		return code;
	}
	link->number = wish->link;
	TAILQ_INSERT_TAIL(&links->list, link, link);
	if (++links->count > LINKS_MOST)
		drop(links, TAILQ_FIRST(&links->list));
	*ret_link = link;
	return CUDA_SUCCESS;
}

/* Finds the link by the program's number; position 0 makes a new link. */
static CUresult take(struct links *links, const struct wire_link *wish, struct link **ret_link)
{
	struct link *link = find(links, wish->link);

	if (!wish->position) {
		if (link)
			drop(links, link);
		return begin(links, wish, ret_link);
	}
	if (!link || link->positions != wish->position)
		return CUDA_ERROR_ILLEGAL_STATE;
	TAILQ_REMOVE(&links->list, link, link);
	TAILQ_INSERT_TAIL(&links->list, link, link);
	*ret_link = link;
	return CUDA_SUCCESS;
}

static CUresult add(struct links *links, struct link *link, const struct wire_link *wish, int fd)
{
	struct backend_link_input input = {
		.type = wish->type, .bytes = wish->bytes, .name = wish->name, .options = &wish->own};
	uint8_t *bytes;
	CUresult code = file_read(fd, wish->bytes, &bytes);

	if (code)
		return code;
	input.at = bytes;
	code = links->ops->link_add(link->backend, &input);
	free(bytes);
	/* A refused input counts for nothing, as with the driver. */
	link->positions += !code;
	return code;
}

static CUresult complete(struct links *links, struct link *link, int fd, uint64_t *ret_bytes)
{
	const void *image = NULL;
	size_t bytes = 0;
	CUresult code = links->ops->link_complete(link->backend, &image, &bytes);

	if (!code)
		code = bytes > LINKS_IMAGE_MAX ? CUDA_ERROR_OUT_OF_MEMORY : file_write(fd, image, bytes, 0);
	if (!code)
		*ret_bytes = bytes;
	return code;
}

/* Drops older links. Return: true if a link was dropped */
static bool make_room(struct links *links, const struct link *link)
{
	struct link *oldest = TAILQ_FIRST(&links->list);

	if (oldest == link)
		return false;
	drop(links, oldest);
	return true;
}

CUresult links_handle(struct links *links, const struct wire_message *request, int fd, uint64_t *ret_bytes,
	const char **ret_errors, const char **ret_remarks)
{
	const struct wire_link *wish = &request->link;
	struct link *link = NULL;
	CUresult code;

	if (request->type == WIRE_LINK_DROP) {
		link = find(links, wish->link);
		if (link)
			drop(links, link);
		return CUDA_SUCCESS;
	}
	code = take(links, wish, &link);
	if (code)
		return code;
	do
		code = request->type == WIRE_LINK_ADD ? add(links, link, wish, fd)
						      : complete(links, link, fd, ret_bytes);
	while (code == CUDA_ERROR_OUT_OF_MEMORY && make_room(links, link));
	links->ops->link_logs(link->backend, ret_errors, ret_remarks);
	return code;
}
