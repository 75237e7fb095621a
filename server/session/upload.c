// See upload.h.

#include "server/session/upload.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/loop/shared_fd.h"
#include "server/session/taking.h"

static uint64_t number_of(const struct wire_message *message)
{
	switch (message->type) {
	case WIRE_LOAD_MODULE:
		return message->load_module.file;
	case WIRE_LINK_ADD:
		return message->link.file;
	case WIRE_MAKE_GRAPH:
		return message->graph.file;
	case WIRE_MAP_HOST:
		return message->range.file;
	default:
		return 0;
	}
}

static void forget_code(struct compiled *code)
{
	shared_fd_unref(code->fd);
	free(code->log);
	*code = (struct compiled){0};
}

static void forget(struct uploads *uploads, unsigned i)
{
	uploads->at[i].number = 0;
	uploads->at[i].file = shared_fd_unref(uploads->at[i].file);
	uploads->at[i].taking = taking_free(uploads->at[i].taking);
	forget_code(&uploads->at[i].code);
}

/* Index of the file with a number; UPLOADS_MAX: none. */
static unsigned place_of_number(const struct uploads *uploads, uint64_t number)
{
	unsigned i = 0;

	while (i < UPLOADS_MAX && (!number || uploads->at[i].number != number))
		i++;
	return i;
}

/* Index of the file that the message names; UPLOADS_MAX: none. */
static unsigned place_of(const struct uploads *uploads, const struct wire_message *message)
{
	return place_of_number(uploads, number_of(message));
}

/* The place for the next file, which is empty; the oldest makes room. */
static unsigned make_room(struct uploads *uploads, uint32_t epoch, uint64_t *ret_number)
{
	uint64_t count = ++uploads->latest;
	unsigned i = (unsigned)(count % UPLOADS_MAX);

	forget(uploads, i);
	*ret_number = (uint64_t)epoch << 32 | (uint32_t)count;
	return i;
}

/* Where the daemon may not make files so long (RLIMIT_FSIZE), this one grows as it is written. */
static int make_file(void)
{
	int fd = memfd_create("frmps-upload", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0)
		(void)!ftruncate(fd, (off_t)WIRE_FILE_BYTES);
	return fd;
}

struct shared_fd *uploads_make(struct uploads *uploads, uint32_t epoch, uint64_t *ret_number)
{
	struct shared_fd *file = shared_fd_new(make_file());
	unsigned i;

	if (!file)
		return NULL;
	i = make_room(uploads, epoch, ret_number);
	uploads->at[i].file = file;
	uploads->at[i].number = *ret_number;
	return file;
}

/* The number is awaited: else there would be no taking. */
static void on_taken(void *context, uint64_t number, struct shared_fd *file)
{
	struct uploads *uploads = context;
	unsigned i = place_of_number(uploads, number);

	uploads->at[i].taking = taking_free(uploads->at[i].taking);
	uploads->at[i].file = file;
	if (!file)
		uploads->at[i].number = 0;
}

bool uploads_take(struct uploads *uploads, struct uv_loop_s *loop, uint32_t epoch, uid_t user,
	uint64_t *ret_number, int *ret_socket)
{
	unsigned i = make_room(uploads, epoch, ret_number);

	uploads->at[i].taking = taking_new(loop, user, *ret_number, on_taken, uploads, ret_socket);
	uploads->at[i].number = uploads->at[i].taking ? *ret_number : 0;
	return uploads->at[i].taking;
}

struct shared_fd *uploads_find(const struct uploads *uploads, const struct wire_message *message)
{
	unsigned i = place_of(uploads, message);

	return i < UPLOADS_MAX ? uploads->at[i].file : NULL;
}

void uploads_put_code(struct uploads *uploads, const struct wire_message *message, struct compiled code)
{
	unsigned i = place_of(uploads, message);

	if (i == UPLOADS_MAX) {
		forget_code(&code);
		return;
	}
	forget_code(&uploads->at[i].code);
	uploads->at[i].code = code;
}

struct compiled uploads_take_code(struct uploads *uploads, const struct wire_message *message)
{
	unsigned i = place_of(uploads, message);
	struct compiled code = {0};

	if (i == UPLOADS_MAX)
		return code;
	code = uploads->at[i].code;
	uploads->at[i].code = (struct compiled){0};
	return code;
}

void uploads_drop(struct uploads *uploads, const struct wire_message *message)
{
	unsigned i = place_of(uploads, message);

	if (i < UPLOADS_MAX)
		forget(uploads, i);
}

void uploads_drop_all(struct uploads *uploads)
{
	for (unsigned i = 0; i < UPLOADS_MAX; i++)
		forget(uploads, i);
}

unsigned uploads_count(const struct uploads *uploads)
{
	unsigned count = 0;

	for (unsigned i = 0; i < UPLOADS_MAX; i++)
		count += uploads->at[i].file || uploads->at[i].taking;
	return count;
}
