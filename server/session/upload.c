// See upload.h.

#include "server/session/upload.h"

#include <sys/mman.h>

#include "server/loop/shared_fd.h"

static uint64_t number_of(const struct wire_message *message)
{
	switch (message->type) {
	case WIRE_LOAD_MODULE:
		return message->load_module.file;
	case WIRE_LINK_ADD:
		return message->link.file;
	case WIRE_MAKE_GRAPH:
		return message->graph.file;
	default:
		return 0;
	}
}

struct shared_fd *uploads_make(struct uploads *uploads, uint32_t epoch, uint64_t *ret_number)
{
	struct shared_fd *file = shared_fd_new(memfd_create("frmps-upload", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	uint64_t count;
	unsigned i;

	if (!file)
		return NULL;
	count = ++uploads->latest;
	i = (unsigned)(count % UPLOADS_MAX);
	shared_fd_unref(uploads->at[i].file);
	uploads->at[i].file = file;
	uploads->at[i].number = *ret_number = (uint64_t)epoch << 32 | (uint32_t)count;
	return file;
}

struct shared_fd *uploads_find(const struct uploads *uploads, const struct wire_message *message)
{
	uint64_t number = number_of(message);

	for (unsigned i = 0; number && i < UPLOADS_MAX; i++)
		if (uploads->at[i].number == number)
			return uploads->at[i].file;
	return NULL;
}

void uploads_drop(struct uploads *uploads, const struct wire_message *message)
{
	uint64_t number = number_of(message);

	for (unsigned i = 0; number && i < UPLOADS_MAX; i++)
		if (uploads->at[i].number == number) {
			uploads->at[i].number = 0;
			uploads->at[i].file = shared_fd_unref(uploads->at[i].file);
		}
}

void uploads_drop_all(struct uploads *uploads)
{
	for (unsigned i = 0; i < UPLOADS_MAX; i++)
		uploads->at[i].file = shared_fd_unref(uploads->at[i].file);
}

unsigned uploads_count(const struct uploads *uploads)
{
	unsigned count = 0;

	for (unsigned i = 0; i < UPLOADS_MAX; i++)
		count += uploads->at[i].file != NULL;
	return count;
}
